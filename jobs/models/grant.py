"""Grants: what a Django user or a key is in a workspace, always said and never implied (E2, D2)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.models.key import Key
from jobs.models.tenancy import Workspace

ROLES = ("member", "assignee", "conductor")


class Grant(models.Model):
    """One role of one principal in one workspace: a member may less than an assignee, and that less than a conductor.

    Superusers and staff have none of themselves. A user is named by its primary key as text, since jobs does without
    Django's users; when it is deleted its grants go (`JobsConfig`).
    """

    id = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="grants")
    user_id = models.CharField(max_length=64, null=True, db_comment="The primary key of a Django user, as text")
    # The database deletes with the key: the eraser does not ask Django (B38).
    key = models.ForeignKey(Key, on_delete=models.CASCADE, null=True, related_name="grants", db_constraint=False)
    role = models.CharField(max_length=16)
    by = models.CharField(max_length=200, db_comment="Who gave it")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_grant"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="grant_of_one", condition=Q(user_id=None) ^ Q(key=None)),
            models.CheckConstraint(name="grant_role_known", condition=Q(role__in=ROLES)),
            models.UniqueConstraint(fields=["user_id", "workspace"], name="grant_of_user_once"),
            models.UniqueConstraint(fields=["key", "workspace"], name="grant_of_key_once"),
        ]

    def __str__(self) -> str:
        return f"{self.role} of {self.workspace_id}"
