"""Throttles: caps and pauses of queues, worker groups, types and tenants, and the gate of jobs of a throttled type."""

import django.db.models.deletion
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import F, Q

import jobs.clock

# What the schema before this migration knows no word for: jobs of a throttled type are claimable again.
BACK = [
    """INSERT INTO jobs_claim_line (workspace_id, worker_group, queue, tenant_id)
    SELECT DISTINCT workspace_id, worker_group, queue, tenant_id FROM jobs_job WHERE gate = 'type'""",
    "UPDATE jobs_job SET gate = NULL WHERE gate = 'type'",
    "UPDATE jobs_claim_line SET parked = NULL WHERE parked = 'paused'",
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0013_budgets")]
    operations = [
        migrations.CreateModel(
            name="Throttle",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=16)),
                ("name", models.CharField(
                    max_length=64, db_comment="Of the queue, worker group or type; empty: of a tenant")),
                ("workspace", models.ForeignKey(
                    null=True, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="throttles",
                    to="jobs.workspace", db_comment="Null: the whole site")),
                ("tenant", models.OneToOneField(
                    null=True, on_delete=django.db.models.deletion.CASCADE, related_name="throttle",
                    to="jobs.tenant")),
                ("most", models.PositiveIntegerField(null=True, db_comment="Most running jobs; null: no cap")),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_until", models.DateTimeField(null=True, db_comment="Null: until somebody resumes it")),
                ("paused_by", models.CharField(max_length=200, null=True)),
                ("pause_reason", models.CharField(max_length=512, null=True)),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("updated_at", models.DateTimeField(db_default=jobs.clock.Now())),
            ],
            options={
                "db_table": "jobs_throttle",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=["kind", "name", "workspace", "tenant"], name="throttle_once",
                                            nulls_distinct=False),
                    models.CheckConstraint(name="throttle_kind_known",
                                           condition=Q(kind__in=("queue", "worker_group", "type", "tenant"))),
                    models.CheckConstraint(
                        name="throttle_names_one",
                        condition=(Q(kind="tenant", name="", tenant__isnull=False, workspace__isnull=False)
                                   | (~Q(kind="tenant") & ~Q(name="") & Q(tenant__isnull=True)))),
                    models.CheckConstraint(name="throttle_most_positive",
                                           condition=Q(most=None) | (Q(most__gte=1) & ~Q(kind="tenant"))),
                    models.CheckConstraint(name="throttle_says_something",
                                           condition=Q(most__isnull=False) | Q(paused_at__isnull=False)),
                    models.CheckConstraint(
                        name="throttle_pause_whole",
                        condition=Q(paused_at=None, paused_until=None, paused_by=None, pause_reason=None)
                        | (Q(paused_at__isnull=False, paused_by__isnull=False, pause_reason__isnull=False)
                           & (Q(paused_until=None) | Q(paused_until__gt=F("paused_at"))))),
                ],
            },
        ),
        migrations.RemoveConstraint("job", "job_gate_only_queued"),
        # Every row obeys it already: it says less than the one before, so that nothing need be read under a lock.
        AddConstraintNotValid("job", models.CheckConstraint(
            name="job_gate_only_queued",
            condition=Q(gate__isnull=True) | Q(state="queued", gate__in=["scheduled", "exclusive", "spent", "type"]))),
        migrations.RunSQL(migrations.RunSQL.noop, BACK),
    ]
