"""Bulk answers: one person's answer to many dead letters, given in the background batch by batch."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.clock import Now


class BulkAnswer(models.Model):
    """What a person wanted done to which letters, and how far it has come. The counts commit with each batch."""

    token = models.UUIDField(unique=True, db_comment="Of the form that asked: sent twice it is still one answer")
    verb = models.CharField(max_length=16)
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=512)

    workspace_id = models.BigIntegerField(null=True)
    tenant_id = models.BigIntegerField(null=True)
    type = models.CharField(max_length=64, null=True)
    letter_reason = models.CharField(max_length=64, null=True)
    cluster = models.CharField(max_length=16, null=True)
    since = models.DateTimeField(null=True)
    house = models.BooleanField(default=False, db_comment="The letters of the house's own jobs, and no others (E11)")
    letters = ArrayField(models.BigIntegerField(), null=True, db_comment="A selection by hand")
    upto = models.BigIntegerField(db_comment="Letters opened later are not meant")

    expected = models.IntegerField(db_comment="Open at its making; 100,001: more than 100,000")
    after = models.BigIntegerField(default=0, db_comment="The last letter that was looked at")
    done = models.IntegerField(default=0)
    skipped = models.JSONField(default=dict, db_comment="How many were left alone, by the code of the refusal")

    canary = models.BooleanField(default=False, db_comment="One first; the rest when its job has completed")
    canary_letter = models.BigIntegerField(null=True)
    rate = models.IntegerField(null=True, db_comment="Letters a second at most")
    most_failed = models.IntegerField(null=True, db_comment="Percent of failures again at which it stops itself")

    created_at = models.DateTimeField(db_default=Now())
    going_at = models.DateTimeField(null=True, db_comment="When the rest was let go after the canary")
    moved_at = models.DateTimeField(null=True, db_comment="Of the latest batch")
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=32, null=True)
    ended_by = models.CharField(max_length=200, null=True)

    class Meta:
        db_table = "jobs_bulk_answer"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(name="bulk_answer_verb_known", condition=Q(verb__in=["requeue", "discard"])),
            models.CheckConstraint(name="bulk_answer_ended_with_end",
                                   condition=Q(ended_at__isnull=True, end__isnull=True)
                                   | Q(ended_at__isnull=False, end__isnull=False)),
            models.CheckConstraint(name="bulk_answer_counts", condition=Q(done__gte=0, expected__gte=0, after__gte=0)),
        ]
        indexes = [models.Index("id", name="bulk_answer_open", condition=Q(ended_at__isnull=True))]

    def __str__(self) -> str:
        return f"{self.verb} {self.pk}"

    @property
    def ended(self) -> bool:
        """Whether it goes on no more."""
        return self.ended_at is not None

    @property
    def skipped_count(self) -> int:
        """How many letters were left alone."""
        return sum(self.skipped.values())

    @property
    def looked_at(self) -> int:
        """How many letters it has come past."""
        return self.done + self.skipped_count
