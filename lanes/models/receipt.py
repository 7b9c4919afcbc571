"""Receipts of lanes: every change with who, why and when, numbered, append-only (D9 to D11)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.models.receipt import refuse_unless_erasing
from lanes.axes import Axis
from lanes.models.lane import Lane

# What happened: made, moved on an axis, given to somebody, made to wait for others, given a job.
KINDS = ("created", "state", "review", "merge", "assignee", "dependencies", "job")


class LaneReceipt(models.Model):
    """One appended fact about a lane. `before` and `after` are states, assignees, names of lanes, or a job's id."""

    pk = models.CompositePrimaryKey("lane_id", "number")
    lane = models.ForeignKey(Lane, on_delete=models.PROTECT, db_index=False, related_name="receipts")
    number = models.IntegerField(db_comment="1..n without gaps: the only cursor")
    kind = models.CharField(max_length=16)
    axis = models.CharField(max_length=16, null=True)
    before = models.TextField(null=True)
    after = models.TextField(null=True)
    commit = models.CharField(max_length=64, null=True)
    by = models.CharField(max_length=200)
    reason = models.CharField(max_length=512, blank=True, default="")
    version = models.IntegerField(db_comment="Of the lane after it; a job changes none")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "lanes_receipt"
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="lane_receipt_number_positive", condition=Q(number__gte=1, version__gte=1)),
            models.CheckConstraint(name="lane_receipt_kind_known", condition=Q(kind__in=KINDS)),
            models.CheckConstraint(name="lane_receipt_axis_known",
                                   condition=Q(axis=None) | Q(axis__in=[a.value for a in Axis])),
            # Each change of a lane is one version and one receipt. Finds, too, what has changed since one was read.
            models.UniqueConstraint(fields=["lane", "version"], name="lane_receipt_of_version_once",
                                    condition=~Q(kind="job")),
        ]
        triggers = [refuse_unless_erasing("lane_receipt_append_only", "TG_OP = 'DELETE'")]

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"
