"""A quorum: one agreement of a workspace, from which lanes go out."""

from __future__ import annotations

import pgtrigger

# Lets Meta.triggers be said where pgtrigger is no installed app.
import pgtrigger.apps
from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.ids import uuid7
from jobs.models import Workspace


class Quorum(models.Model):
    """One agreement. A closed one takes no new lanes; those that there are go on."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, db_index=False, related_name="quorums",
                                  db_comment="The project; never changed")
    name = models.CharField(max_length=100)
    title = models.CharField(max_length=200, blank=True, default="")
    by = models.CharField(max_length=200, db_comment="Who made it")
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=200, null=True)
    close_reason = models.CharField(max_length=512, null=True)

    class Meta:
        db_table = "lanes_quorum"
        default_permissions = ()
        verbose_name_plural = "quorums"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "name"], name="quorum_name_once"),
            models.CheckConstraint(
                name="quorum_closing_whole",
                condition=Q(closed_at=None, closed_by=None, close_reason=None)
                | Q(closed_at__isnull=False, closed_by__isnull=False, close_reason__isnull=False)),
        ]
        indexes = [models.Index("workspace", "id", name="quorum_by_workspace")]
        triggers = [pgtrigger.Trigger(
            name="quorum_stays_where_it_is", when=pgtrigger.Before, operation=pgtrigger.Update,
            condition=pgtrigger.Condition("OLD.id <> NEW.id OR OLD.workspace_id <> NEW.workspace_id"),
            func="RAISE EXCEPTION 'a quorum stays in its workspace' USING ERRCODE = 'restrict_violation';")]

    def __str__(self) -> str:
        return self.name
