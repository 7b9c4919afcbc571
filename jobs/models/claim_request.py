"""Claims that were asked for under a name of the runner's own, so that a lost answer can be asked for again."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.clock import Now
from jobs.models.key import Key


class ClaimRequest(models.Model):
    """One claim with a `request_id` that brought something, written in the transaction of the claim itself."""

    id = models.BigAutoField(primary_key=True)
    key = models.ForeignKey(Key, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    request_id = models.CharField(max_length=200)
    fingerprint = models.BinaryField(db_comment="sha256 of what was asked: the same name for something else is refused")
    attempts = ArrayField(models.UUIDField(default=uuid.uuid4), db_comment="What it brought, in order; live or ended")
    repeats = models.PositiveIntegerField(default=0, db_comment="How often it was answered again")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_claim_request"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["key", "request_id"], name="claim_request_once")]

    def __str__(self) -> str:
        return f"claim {self.request_id} of key {self.key_id}"
