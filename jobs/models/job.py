"""The job: one durable request, from enqueue to an end. The row is the fact.

Only `store.moves` writes it after it was made. No column that a heartbeat changes is here or indexed.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from jobs.clock import Now
from jobs.ids import uuid7
from jobs.models import permissions
from jobs.models.target import Target
from jobs.models.tenancy import Tenant, Workspace
from jobs.states import HELD, TERMINAL, Gate, State

TERMINAL_STATES = sorted(s.value for s in TERMINAL)
HELD_STATES = sorted(s.value for s in HELD)


def _choices(*values: str) -> Q:
    return Q(state__in=values)


class Job(models.Model):
    """One durable request. Spans are milliseconds, moments are the database's."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False,
                                  related_name="+", db_comment="The tenant's; not a second foreign key on the hot path")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="jobs")

    type = models.CharField(max_length=64)
    version = models.IntegerField()
    queue = models.CharField(max_length=64)
    worker_group = models.CharField(max_length=64)
    agent = models.CharField(max_length=64, null=True, db_comment="Of the request; routes before the type (A23)")
    origin = models.CharField(max_length=16, db_comment="Stamped by the door, never sent (B13)")
    priority = models.SmallIntegerField(default=0)
    subject = models.CharField(max_length=200, null=True, db_comment="What lists show of this job (B40)")

    input = models.TextField(db_comment="Canonical JSON in the codec's normal form; emptied by redaction")
    input_hash = models.BinaryField(db_comment="sha256 of the input; receipts carry it")
    fingerprint = models.BinaryField(db_comment="sha256 of the request as sent (E6)")
    normal_hash = models.BinaryField(
        null=True, db_comment="Of a keyed request in process: sha256 with the input in normal form (B15)")
    external_id = models.CharField(max_length=200, null=True, db_comment="The caller's job_id (E2)")
    idempotency_key = models.CharField(max_length=200, null=True)
    session_key = models.CharField(max_length=200, null=True, db_comment="What singleton modes act on (A14)")
    singleton = models.CharField(max_length=8, default="allow")
    exclusive_group = models.CharField(max_length=200, null=True, db_comment="At most N running at once (C11)")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, null=True, db_constraint=False, db_index=False,
                               related_name="jobs", db_comment="Null too where it was redacted; no foreign key: "
                               "deleting a target would read all jobs")
    generation = models.IntegerField(null=True, db_comment="Of the target, at enqueue (B16)")

    state = models.CharField(max_length=16, default=State.QUEUED.value)
    reason = models.CharField(max_length=512, null=True, db_comment="Of the latest move; null where it needs none")
    gate = models.CharField(max_length=16, null=True,
                            db_comment="Why a queued job is not in the claim index; derived, never folded")
    available_at = models.DateTimeField(db_default=Now(), db_comment="Never claimed before")
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, db_comment="First claim ever, kept over requeue (C7)")
    chain_started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)

    max_attempts = models.IntegerField(null=True, db_comment="Null: never retried after a reported failure (E4)")
    base_delay_ms = models.BigIntegerField(default=5_000)
    max_delay_ms = models.BigIntegerField(default=300_000)
    retry_on = ArrayField(models.CharField(max_length=64), null=True)
    lapse_counts = models.BooleanField(default=True)
    max_lapses = models.IntegerField(default=10)
    max_claims = models.IntegerField(null=True, db_comment="Most claims of a chain, whatever their end (E4)")
    dead_letter = models.BooleanField(default=True, db_comment="Whether an end in failed opens one (E4)")
    deadline_ms = models.BigIntegerField(null=True, db_comment="Relative; becomes deadline_at at a chain's first claim")
    deadline_at = models.DateTimeField(null=True)
    lease_ms = models.IntegerField(default=30_000, db_comment="Liveness only (E8)")
    timeout_ms = models.BigIntegerField(null=True, db_comment="Of an attempt")
    max_duration_ms = models.BigIntegerField(null=True, db_comment="Terminal when exceeded (C34)")
    duration_scope = models.CharField(max_length=8, default="attempt")
    strict_lease = models.BooleanField(default=False, db_comment="A settle after the lease is refused (B23)")
    credential = models.CharField(max_length=8, default="none", db_comment="none, or owner (E10)")

    callback_url = models.TextField(null=True, db_comment="Null with events: the site's (A37); emptied by redaction")
    callback_events = models.SmallIntegerField(null=True, db_comment="Which, as bits (`jobs.callbacks`); null: none")
    max_cost_usd = models.DecimalField(max_digits=20, decimal_places=9, null=True,
                                       db_comment="Most that it may cost over all its attempts (C12)")
    cost_usd = models.DecimalField(max_digits=20, decimal_places=9, null=True,
                                   db_comment="What its attempts have reported so far; null: nothing (C12)")

    claims = models.IntegerField(default=0, db_comment="Ever, never reset: the fencing number outside (E14.22)")
    chain = models.IntegerField(default=1)
    chain_claims = models.IntegerField(default=0)
    failures = models.IntegerField(default=0)
    lapses = models.IntegerField(default=0)
    releases = models.IntegerField(default=0)
    interruptions = models.IntegerField(default=0)
    pauses = models.IntegerField(default=0)

    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.DO_NOTHING, null=True, db_constraint=False,
                                db_index=False, related_name="+", db_comment="The live attempt: the fence")
    abort_reason = models.CharField(max_length=512, null=True, db_comment="Set while an abort is pending (E5)")
    progress = models.TextField(null=True, db_comment="Latest declared stage, canonical JSON")
    checkpoint = models.TextField(null=True, db_comment="Resume data; survives lapse and requeue (C27, C33)")
    checkpoint_number = models.IntegerField(default=0)
    checkpoint_hash = models.BinaryField(null=True)

    revision = models.IntegerField(default=1, db_comment="Moves of state: the ETag")
    number = models.IntegerField(default=1, db_comment="Receipts: the cursor")
    head = models.BinaryField(db_comment="Hash of the latest receipt (E12)")

    class Meta:
        db_table = "jobs_job"
        default_permissions = ("view",)
        permissions = permissions.OWN
        constraints = [
            models.CheckConstraint(name="job_state_known", condition=_choices(*[s.value for s in State])),
            models.CheckConstraint(
                name="job_live_attempt_iff_held",
                condition=(_choices(*HELD_STATES) & Q(attempt__isnull=False))
                | (~_choices(*HELD_STATES) & Q(attempt__isnull=True))),
            models.CheckConstraint(
                name="job_terminal_iff_ended",
                condition=(_choices(*TERMINAL_STATES) & Q(ended_at__isnull=False))
                | (~_choices(*TERMINAL_STATES) & Q(ended_at__isnull=True))),
            models.CheckConstraint(
                name="job_gate_only_queued",
                condition=Q(gate__isnull=True) | Q(state="queued", gate__in=[g.value for g in Gate])),
            models.CheckConstraint(name="job_target_with_generation",
                                   condition=Q(target__isnull=True) | Q(generation__isnull=False)),
            models.CheckConstraint(name="job_priority_range", condition=Q(priority__gte=-100, priority__lte=100)),
            models.CheckConstraint(name="job_singleton_known", condition=Q(singleton__in=["allow", "cancel", "steer"])),
            models.CheckConstraint(name="job_chain_positive",
                                   condition=Q(chain__gte=1, revision__gte=1, number__gte=F("revision"))),
            models.CheckConstraint(name="job_spans_positive",
                                   condition=Q(lease_ms__gt=0, base_delay_ms__gt=0, max_lapses__gte=1,
                                               max_delay_ms__gte=F("base_delay_ms"))),
            models.CheckConstraint(name="job_counters_not_negative",
                                   condition=Q(chain_claims__lte=F("claims"), failures__gte=0, lapses__gte=0,
                                               releases__gte=0, interruptions__gte=0, pauses__gte=0,
                                               chain_claims__gte=0)),
            models.UniqueConstraint(name="job_external_id_once", fields=["tenant", "external_id"],
                                    condition=Q(external_id__isnull=False)),
            models.UniqueConstraint(name="job_idempotency_key_once", fields=["tenant", "idempotency_key"],
                                    condition=Q(idempotency_key__isnull=False)),
        ]
        indexes = [
            models.Index("worker_group", "queue", "tenant", F("priority").desc(), "available_at", "id",
                         name="job_claim", condition=Q(state="queued", gate__isnull=True)),
            models.Index("available_at", "id", name="job_scheduled", condition=Q(gate="scheduled")),
            models.Index("tenant", "exclusive_group", F("priority").desc(), "available_at", "id",
                         name="job_held", condition=Q(gate="exclusive")),
            models.Index("workspace", "exclusive_group", F("priority").desc(), "available_at", "id",
                         name="job_held_workspace", condition=Q(gate="exclusive")),
            models.Index("workspace", "exclusive_group", "tenant", name="job_group_active",
                         condition=Q(exclusive_group__isnull=False, gate__isnull=True,
                                     state__in=["queued", "leased", "running"])),
            models.Index("id", name="job_spent", condition=Q(gate="spent")),
            models.Index("type", "workspace", "tenant", F("priority").desc(), "available_at", "id",
                         name="job_held_type", condition=Q(gate="type")),
            models.Index("deadline_at", "id", name="job_deadline",
                         condition=Q(state="queued", deadline_at__isnull=False)),
            models.Index("tenant", "session_key", "id", name="job_session",
                         condition=Q(session_key__isnull=False, ended_at__isnull=True)),
            models.Index("target", "generation", name="job_target_active",
                         condition=Q(target__isnull=False, ended_at__isnull=True)),
            models.Index("reason", "id", name="job_paused", condition=Q(state="paused")),
            models.Index("tenant", "id", name="job_by_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.type}@{self.version} {self.id}"

    @property
    def ended(self) -> bool:
        """Whether the job has reached a terminal state."""
        return self.state in TERMINAL_STATES

    @property
    def attempt_count(self) -> int:
        """Starts of the present chain that count (C16, E2)."""
        return max(0, self.chain_claims - self.releases - self.interruptions - self.pauses)
