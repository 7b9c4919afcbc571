"""Timers, each time that they fired, and who may manage them."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

import jobs.clock
import jobs.ids

CATCH_UPS = ("skip", "last", "all")
OVERLAPS = ("allow", "skip", "supersede")
OUTCOMES = ("enqueued", "overlapped", "missed", "refused")


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_key_rates")]
    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("view_payload", "Can view inputs, artifacts and checkpoints"),
                    ("enqueue_job", "Can enqueue jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("pause_job", "Can pause and resume jobs"),
                    ("requeue_job", "Can requeue dead letters"),
                    ("discard_job", "Can discard dead letters"),
                    ("archive_tenant", "Can archive and restore tenants"),
                    ("erase", "Can redact jobs, and redact or delete tenants for good"),
                    ("manage_limits", "Can manage limits"),
                    ("manage_keys", "Can manage keys of the API"),
                    ("manage_owners", "Can manage owners"),
                    ("manage_timers", "Can manage timers"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Timer",
            fields=[
                ("id", models.UUIDField(default=jobs.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                ("type", models.CharField(max_length=64)),
                ("version", models.IntegerField(null=True, db_comment="Null: the current one at each firing")),
                ("input", models.TextField(
                    db_comment="Canonical JSON; checked by the codec when it is put and at each firing")),
                ("options", models.TextField(db_comment="Canonical JSON of what enqueue takes beside it")),
                ("moment_field", models.CharField(
                    max_length=64, null=True, db_comment="The field of the input that gets the moment; null: none")),
                ("cron", models.CharField(max_length=200, null=True)),
                ("every_s", models.PositiveIntegerField(null=True)),
                ("anchor_at", models.DateTimeField(
                    null=True, db_comment="Of an interval: its moments are counted from here")),
                ("zone", models.CharField(max_length=64, default="UTC")),
                ("catch_up", models.CharField(max_length=4, default="skip")),
                ("catch_up_most", models.PositiveSmallIntegerField(
                    default=1, db_comment="Most missed moments that are made up")),
                ("overlap", models.CharField(max_length=9, default="allow")),
                ("paused_at", models.DateTimeField(null=True)),
                ("paused_by", models.CharField(max_length=200, null=True)),
                ("paused_reason", models.CharField(max_length=512, null=True)),
                ("paused_until", models.DateTimeField(null=True, db_comment="Null: until somebody resumes it")),
                ("next_at", models.DateTimeField(
                    null=True, db_comment="The first moment that nobody has dealt with; null: none")),
                ("last_at", models.DateTimeField(null=True, db_comment="The latest moment that made a job")),
                ("last_job_id", models.UUIDField(null=True, db_comment="That job; no foreign key")),
                ("revision", models.PositiveIntegerField(
                    default=1, db_comment="Rises with each change but a firing: the ETag")),
                ("by", models.CharField(max_length=200, db_comment="Who put it last")),
                ("declared", models.BooleanField(
                    default=False, db_comment="By the site's settings, which alone may change it")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("updated_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("tenant", models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="timers",
                    to="jobs.tenant")),
                ("workspace", models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="timers",
                    to="jobs.workspace")),
            ],
            options={
                "db_table": "jobs_timer",
                "default_permissions": (),
                "indexes": [
                    models.Index("next_at", "id", name="timer_due", condition=Q(paused_at=None)),
                    models.Index("paused_until", name="timer_pause_ends", condition=Q(paused_until__isnull=False)),
                    models.Index("workspace", "id", name="timer_workspace"),
                    models.Index("tenant", "id", name="timer_tenant"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["tenant", "name"], name="timer_name_once"),
                    models.CheckConstraint(name="timer_one_schedule",
                                           condition=Q(cron__isnull=False, every_s=None, anchor_at=None)
                                           | Q(cron=None, every_s__gte=1, anchor_at__isnull=False)),
                    models.CheckConstraint(
                        name="timer_catch_up_known",
                        condition=Q(catch_up__in=CATCH_UPS, catch_up_most__gte=1, catch_up_most__lte=1000)),
                    models.CheckConstraint(name="timer_overlap_known", condition=Q(overlap__in=OVERLAPS)),
                    models.CheckConstraint(
                        name="timer_pause_whole",
                        condition=Q(paused_at=None, paused_until=None, paused_by=None, paused_reason=None)
                        | (Q(paused_at__isnull=False, paused_by__isnull=False, paused_reason__isnull=False)
                           & (Q(paused_until=None) | Q(paused_until__gt=F("paused_at"))))),
                ],
            },
        ),
        migrations.CreateModel(
            name="Firing",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant_id", models.BigIntegerField()),
                ("moment", models.DateTimeField(
                    db_comment="When it should fire; of a manual one, when somebody asked")),
                ("made_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("outcome", models.CharField(max_length=10)),
                ("missed", models.PositiveIntegerField(
                    null=True, db_comment="Of a missed one: how many it stands for, 1000 and more of a cron expression"
                    " are 1000")),
                ("code", models.CharField(max_length=64, null=True, db_comment="Of a refused one")),
                ("detail", models.CharField(max_length=500, null=True)),
                ("job_id", models.UUIDField(null=True, db_comment="The job that it made; no foreign key")),
                ("manual", models.BooleanField(default=False)),
                ("by", models.CharField(max_length=200, null=True, db_comment="Of a manual one")),
                ("timer", models.ForeignKey(
                    db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING,
                    related_name="firings", to="jobs.timer")),
            ],
            options={
                "db_table": "jobs_firing",
                "default_permissions": (),
                "indexes": [
                    models.Index("job_id", name="firing_job"),
                    models.Index("tenant_id", "id", name="firing_tenant"),
                    models.Index("id", name="firing_refused", condition=Q(outcome="refused")),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["timer", "moment"], name="firing_once"),
                    models.CheckConstraint(name="firing_outcome_known", condition=Q(outcome__in=OUTCOMES)),
                ],
            },
        ),
    ]
