"""Bulk operations: one thing that a person wants done to many jobs or dead letters, done batch by batch."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.clock import Now


class BulkOperation(models.Model):
    """What a person wanted done to which jobs or letters, and how far it has come. The counts commit with each batch.

    What matches is first gathered into `BulkItem`s, the frozen set; then each of them is done or refused.
    """

    id = models.BigAutoField(primary_key=True)
    token = models.UUIDField(unique=True, db_comment="Of the form that asked: sent twice it is still one operation")
    about = models.CharField(max_length=8, default="letters", db_default="letters", db_comment="letters or jobs")
    verb = models.CharField(max_length=16)
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=512)
    allow_archived = models.BooleanField(default=False, db_default=False,
                                         db_comment="May cancel jobs of archived tenants (B37)")
    limited = models.BooleanField(default=False, db_default=False, db_comment="Bound by the tenants' rates (C28)")

    workspace_id = models.BigIntegerField(null=True)
    tenant_id = models.BigIntegerField(null=True)
    type = models.CharField(max_length=64, null=True)
    letter_reason = models.CharField(max_length=64, null=True)
    cluster = models.CharField(max_length=16, null=True)
    since = models.DateTimeField(null=True)
    until = models.DateTimeField(null=True)
    house = models.BooleanField(default=False, db_comment="The letters of the house's own jobs, and no others (E11)")
    letters = ArrayField(models.BigIntegerField(), null=True, db_comment="A selection by hand")
    upto = models.BigIntegerField(null=True, db_comment="Letters opened later are not meant")
    job_filter = models.JSONField(null=True, db_comment="Which jobs are meant, where it is about jobs")

    expected = models.IntegerField(
        null=True, db_comment="Counted at its making; 100,001: more than 100,000; null: it would have taken too long")
    mark = models.TextField(null=True, db_comment="The last job or letter that gathering has looked at")
    gathered = models.IntegerField(default=0, db_default=0, db_comment="Items in the frozen set so far")
    total = models.IntegerField(null=True, db_comment="Items of the frozen set; null while they are gathered")
    after = models.BigIntegerField(default=0, db_comment="The number of the last item that was looked at")
    done = models.IntegerField(default=0)
    skipped = models.JSONField(default=dict, db_comment="How many were left alone, by the code of the refusal")

    canary = models.BooleanField(default=False, db_comment="One first; the rest when its job has completed")
    canary_letter = models.BigIntegerField(null=True)
    rate = models.IntegerField(null=True, db_comment="Items a second at most")
    most_failed = models.IntegerField(null=True, db_comment="Percent of failures again at which it stops itself")

    created_at = models.DateTimeField(db_default=Now())
    going_at = models.DateTimeField(null=True, db_comment="When the rest was let go after the canary")
    moved_at = models.DateTimeField(null=True, db_comment="Of the latest batch")
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=32, null=True)
    ended_by = models.CharField(max_length=200, null=True)

    class Meta:
        db_table = "jobs_bulk_operation"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(name="bulk_verb_known",
                                   condition=Q(about="letters", verb__in=["requeue", "discard"], upto__isnull=False)
                                   | Q(about="jobs", verb__in=["cancel", "pause", "resume"],
                                       job_filter__isnull=False)),
            models.CheckConstraint(name="bulk_ended_with_end",
                                   condition=Q(ended_at__isnull=True, end__isnull=True)
                                   | Q(ended_at__isnull=False, end__isnull=False)),
            models.CheckConstraint(name="bulk_counts",
                                   condition=Q(done__gte=0, after__gte=0, gathered__gte=0)),
        ]
        indexes = [models.Index("id", name="bulk_open", condition=Q(ended_at__isnull=True)),
                   models.Index("tenant_id", "id", name="bulk_by_tenant", condition=Q(tenant_id__isnull=False))]

    def __str__(self) -> str:
        return f"{self.verb} {self.pk}"

    @property
    def ended(self) -> bool:
        """Whether it goes on no more."""
        return self.ended_at is not None

    @property
    def skipped_count(self) -> int:
        """How many items were left alone."""
        return sum(self.skipped.values())

    @property
    def looked_at(self) -> int:
        """How many items it has come past."""
        return self.done + self.skipped_count

    @property
    def size(self) -> int | None:
        """How many items it is about: exact once they are gathered, else as counted, None where nobody knows yet."""
        return self.total if self.total is not None else self.expected


class BulkItem(models.Model):
    """One job, or one dead letter of it, of the frozen set of a bulk operation, and what became of it."""

    pk = models.CompositePrimaryKey("bulk_id", "number")
    bulk_id = models.BigIntegerField()
    number = models.IntegerField(db_comment="Its place in the frozen set, from 1")
    job_id = models.UUIDField()
    letter_id = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=64, null=True, db_comment="done, or the code of the refusal; null: to come")

    class Meta:
        db_table = "jobs_bulk_item"
        default_permissions = ("view",)
        indexes = [models.Index("job_id", name="bulk_item_by_job")]

    def __str__(self) -> str:
        return f"{self.bulk_id}/{self.number}"
