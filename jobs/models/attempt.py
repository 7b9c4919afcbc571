"""Attempts: one claim of a job each, a row that stays; its id is the fence of every later write of the holder."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.models.job import Job
from jobs.models.key import Key
from jobs.models.worker import Worker


class Attempt(models.Model):
    """One claim, alive until a move ends it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False,
                          db_comment="Random: a capability, and the fence")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, db_index=False, related_name="attempts")
    number = models.IntegerField(db_comment="The job's claims at this claim: the fencing number outside")
    chain = models.IntegerField(default=1)
    worker = models.ForeignKey(Worker, on_delete=models.DO_NOTHING, null=True, db_constraint=False, db_index=False,
                               related_name="+")
    key = models.ForeignKey(Key, on_delete=models.DO_NOTHING, null=True, db_constraint=False, db_index=False,
                            related_name="+", db_comment="The runner's key; in the WHERE of assignment calls")
    leased_at = models.DateTimeField()
    lease_until = models.DateTimeField(db_comment="Until when it is believed without a heartbeat; not indexed")
    started_at = models.DateTimeField(null=True, db_comment="First heartbeat")
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=16, null=True)
    reason_code = models.CharField(max_length=64, null=True)
    message = models.TextField(null=True, db_comment="Error text, stripped and cut to 8 KiB")
    retryable = models.BooleanField(null=True)
    answer_hash = models.BinaryField(null=True, db_comment="sha256 of the settling body: a replay or a conflict (E5)")
    cost_usd = models.DecimalField(max_digits=20, decimal_places=9, null=True,
                                   db_comment="What it has cost by its holder's word; null: nothing was said (C12)")
    owner_binding = models.TextField(null=True, db_comment="Token-free description of the credential (E10)")

    class Meta:
        db_table = "jobs_attempt"
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempt_number_once"),
            models.UniqueConstraint(fields=["job"], condition=Q(ended_at__isnull=True), name="attempt_one_live"),
            models.CheckConstraint(name="attempt_ended_iff_outcome",
                                   condition=Q(ended_at__isnull=True, outcome__isnull=True)
                                   | Q(ended_at__isnull=False, outcome__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job_id}"


class AttemptLog(models.Model):
    """The last log lines of one attempt, written after its end as far as may be (A64); erased with its attempt."""

    attempt = models.OneToOneField(Attempt, on_delete=models.DO_NOTHING, primary_key=True, db_constraint=False,
                                   related_name="log")
    lines = models.TextField(db_comment="At most 200 lines and 64 Ki characters")
    dropped = models.PositiveIntegerField(db_comment="How many earlier lines had to go")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "jobs_attempt_log"

    def __str__(self) -> str:
        return f"log of {self.attempt_id}"


class AttemptCap(models.Model):
    """A live attempt that counts under a cap: one row per cap key, gone when the attempt ends (C9, C11)."""

    pk = models.CompositePrimaryKey("attempt_id", "cap_key")
    attempt_id = models.UUIDField()
    cap_key = models.BigIntegerField(db_comment="hashtextextended of the cap's name; a collision costs a skip")

    class Meta:
        db_table = "jobs_attempt_cap"
        indexes = [models.Index("cap_key", name="attempt_cap_usage")]
