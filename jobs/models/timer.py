"""Timers: rules by which jobs are enqueued again and again, and each time that they fired (D13)."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import F, Q

from jobs.clock import Now
from jobs.ids import uuid7
from jobs.models.tenancy import Tenant, Workspace

CATCH_UPS = ("skip", "last", "all")
OVERLAPS = ("allow", "skip", "supersede")
OUTCOMES = ("enqueued", "overlapped", "missed", "refused")


class Timer(models.Model):
    """One recurring rule of a tenant: what to enqueue, and when."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, db_index=False, related_name="timers")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, db_index=False, related_name="timers")
    name = models.CharField(max_length=100)
    type = models.CharField(max_length=64)
    version = models.IntegerField(null=True, db_comment="Null: the current one at each firing")
    input = models.TextField(db_comment="Canonical JSON; checked by the codec when it is put and at each firing")
    options = models.TextField(db_comment="Canonical JSON of what enqueue takes beside it")
    moment_field = models.CharField(max_length=64, null=True,
                                    db_comment="The field of the input that gets the moment; null: none")
    cron = models.CharField(max_length=200, null=True)
    every_s = models.PositiveIntegerField(null=True)
    anchor_at = models.DateTimeField(null=True, db_comment="Of an interval: its moments are counted from here")
    zone = models.CharField(max_length=64, default="UTC")
    catch_up = models.CharField(max_length=4, default="skip")
    catch_up_most = models.PositiveSmallIntegerField(default=1, db_comment="Most missed moments that are made up")
    overlap = models.CharField(max_length=9, default="allow")
    paused_at = models.DateTimeField(null=True)
    paused_by = models.CharField(max_length=200, null=True)
    paused_reason = models.CharField(max_length=512, null=True)
    paused_until = models.DateTimeField(null=True, db_comment="Null: until somebody resumes it")
    next_at = models.DateTimeField(null=True, db_comment="The first moment that nobody has dealt with; null: none")
    last_at = models.DateTimeField(null=True, db_comment="The latest moment that made a job")
    last_job_id = models.UUIDField(null=True, db_comment="That job; no foreign key")
    revision = models.PositiveIntegerField(default=1, db_comment="Rises with each change but a firing: the ETag")
    by = models.CharField(max_length=200, db_comment="Who put it last")
    declared = models.BooleanField(default=False, db_comment="By the site's settings, which alone may change it")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    # Of a row that `timers.put` has just made.
    fresh = False

    class Meta:
        db_table = "jobs_timer"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="timer_name_once"),
            models.CheckConstraint(name="timer_one_schedule",
                                   condition=Q(cron__isnull=False, every_s=None, anchor_at=None)
                                   | Q(cron=None, every_s__gte=1, anchor_at__isnull=False)),
            models.CheckConstraint(name="timer_catch_up_known",
                                   condition=Q(catch_up__in=CATCH_UPS, catch_up_most__gte=1, catch_up_most__lte=1000)),
            models.CheckConstraint(name="timer_overlap_known", condition=Q(overlap__in=OVERLAPS)),
            models.CheckConstraint(
                name="timer_pause_whole",
                condition=Q(paused_at=None, paused_until=None, paused_by=None, paused_reason=None)
                | (Q(paused_at__isnull=False, paused_by__isnull=False, paused_reason__isnull=False)
                   & (Q(paused_until=None) | Q(paused_until__gt=F("paused_at"))))),
        ]
        indexes = [
            # What a tick reads, and nothing else.
            models.Index("next_at", "id", name="timer_due", condition=Q(paused_at=None)),
            models.Index("paused_until", name="timer_pause_ends", condition=Q(paused_until__isnull=False)),
            # Pages of one who has few among very many.
            models.Index("workspace", "id", name="timer_workspace"),
            models.Index("tenant", "id", name="timer_tenant"),
        ]

    def __str__(self) -> str:
        # Not by its name: logs are kept longer than what is erased.
        return f"timer {self.pk}"

    def paused(self, now: datetime) -> bool:
        """Whether it is paused at this moment."""
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > now)


class Firing(models.Model):
    """One moment of a timer and what became of it; that there is one of each is what makes it exactly once."""

    id = models.BigAutoField(primary_key=True)
    # No constraint: firings of a timer that is gone go by their age.
    timer = models.ForeignKey(Timer, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False,
                              related_name="firings")
    tenant_id = models.BigIntegerField()
    moment = models.DateTimeField(db_comment="When it should fire; of a manual one, when somebody asked")
    made_at = models.DateTimeField(db_default=Now())
    outcome = models.CharField(max_length=10)
    missed = models.PositiveIntegerField(
        null=True, db_comment="Of a missed one: how many it stands for, 1000 and more of a cron expression are 1000")
    code = models.CharField(max_length=64, null=True, db_comment="Of a refused one")
    detail = models.CharField(max_length=500, null=True)
    job_id = models.UUIDField(null=True, db_comment="The job that it made; no foreign key")
    manual = models.BooleanField(default=False)
    by = models.CharField(max_length=200, null=True, db_comment="Of a manual one")

    class Meta:
        db_table = "jobs_firing"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["timer", "moment"], name="firing_once"),
            models.CheckConstraint(name="firing_outcome_known", condition=Q(outcome__in=OUTCOMES)),
        ]
        indexes = [
            models.Index("job_id", name="firing_job"),
            models.Index("tenant_id", "id", name="firing_tenant"),
            # What people are to look after; there should be few.
            models.Index("id", name="firing_refused", condition=Q(outcome="refused")),
        ]

    def __str__(self) -> str:
        return f"firing {self.pk}"
