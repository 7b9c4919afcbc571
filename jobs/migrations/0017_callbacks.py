"""Callbacks: what a job asks for, what is told of it, and the secrets that sign it."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import jobs.clock
import jobs.ids


class Migration(migrations.Migration):
    dependencies = [("jobs", "0016_bulk_operations")]
    operations = [
        # Null without a default: no row is written, and a job without a callback stores nothing of them.
        migrations.AddField("job", "callback_url", models.TextField(
            null=True, db_comment="Null with events: the site's (A37); emptied by redaction")),
        migrations.AddField("job", "callback_events", models.SmallIntegerField(
            null=True, db_comment="Which, as bits (`jobs.callbacks`); null: none")),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.UUIDField(
                    default=jobs.ids.uuid7, editable=False, primary_key=True, serialize=False,
                    db_comment="The webhook-id, over all tries")),
                ("job_id", models.UUIDField(db_comment="Of which it tells; no foreign key, as of receipts")),
                ("workspace_id", models.BigIntegerField()),
                ("tenant_id", models.BigIntegerField()),
                ("sender_id", models.UUIDField(db_comment="The job that sends it; another one with each replay")),
                ("event", models.CharField(max_length=16)),
                ("chain", models.IntegerField()),
                ("revision", models.IntegerField(db_comment="The job's at this event: what receivers sort by")),
                ("job_state", models.CharField(max_length=16)),
                ("reason", models.CharField(max_length=512, null=True)),
                ("at", models.DateTimeField(db_comment="When it happened")),
                ("host", models.CharField(max_length=253, db_comment="Whom it goes to; emptied by redaction")),
                ("site", models.BooleanField(db_comment="To the site's own callback, not to the job's")),
                ("state", models.CharField(default="pending", max_length=16)),
                ("tries", models.IntegerField(default=0)),
                ("replays", models.IntegerField(default=0)),
                ("http_status", models.IntegerField(null=True, db_comment="Of the last try that was answered")),
                ("ms", models.IntegerField(null=True, db_comment="How long the last try took")),
                ("code", models.CharField(max_length=64, null=True, db_comment="Why the last try did not deliver")),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "jobs_delivery",
                "verbose_name_plural": "deliveries",
                "default_permissions": (),
                "indexes": [
                    models.Index("tenant_id", "id", name="delivery_by_tenant"),
                    models.Index("state", "id", name="delivery_by_state", condition=~Q(state="delivered")),
                    models.Index("tenant_id", "state", "id", name="delivery_by_tenant_state",
                                 condition=~Q(state="delivered")),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["job_id", "chain", "event"], name="delivery_once"),
                    models.UniqueConstraint(fields=["sender_id"], name="delivery_sender_once"),
                    models.CheckConstraint(
                        name="delivery_state_known",
                        condition=Q(state__in=["pending", "delivered", "failed", "dropped"])),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeliveryTry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.UUIDField(db_comment="Of which it tells")),
                ("number", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("http_status", models.IntegerField(null=True)),
                ("ms", models.IntegerField()),
                ("code", models.CharField(max_length=64, null=True)),
                ("answer", models.TextField(
                    null=True, db_comment="The first KiB of what came back, as text; for operators alone")),
                ("delivery", models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="log",
                    to="jobs.delivery")),
            ],
            options={
                "db_table": "jobs_delivery_try",
                "verbose_name_plural": "delivery tries",
                "default_permissions": (),
                "indexes": [models.Index("delivery", "id", name="delivery_try_in_order"),
                            models.Index("job_id", name="delivery_try_by_job")],
            },
        ),
        migrations.CreateModel(
            name="CallbackHost",
            fields=[
                ("name", models.CharField(
                    max_length=200, primary_key=True, serialize=False,
                    db_comment="The exclusive group of its deliveries")),
                ("failures", models.IntegerField(db_comment="In a row")),
                ("open_until", models.DateTimeField(null=True, db_comment="No delivery to it begins before")),
            ],
            options={"db_table": "jobs_callback_host", "default_permissions": ()},
        ),
        migrations.CreateModel(
            name="CallbackSecret",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("sealed", models.TextField(
                    db_comment="Encrypted under SECRET_KEY: a signature needs the secret itself")),
                ("hint", models.CharField(max_length=16, db_comment="Its last characters, to tell two apart")),
                ("by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("revoked_at", models.DateTimeField(null=True)),
                ("tenant", models.ForeignKey(
                    db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+",
                    to="jobs.tenant")),
            ],
            options={
                "db_table": "jobs_callback_secret",
                "default_permissions": (),
                "indexes": [models.Index("tenant", "id", name="callback_secret_of_tenant")],
            },
        ),
    ]
