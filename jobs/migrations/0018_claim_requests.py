"""Claims that runners asked for under a name of their own."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import jobs.clock


class Migration(migrations.Migration):
    dependencies = [("jobs", "0017_callbacks")]
    operations = [
        migrations.CreateModel(
            name="ClaimRequest",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("request_id", models.CharField(max_length=200)),
                ("fingerprint", models.BinaryField(
                    db_comment="sha256 of what was asked: the same name for something else is refused")),
                ("attempts", django.contrib.postgres.fields.ArrayField(
                    models.UUIDField(default=uuid.uuid4), size=None,
                    db_comment="What it brought, in order; live or ended")),
                ("repeats", models.PositiveIntegerField(default=0, db_comment="How often it was answered again")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("key", models.ForeignKey(
                    db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING,
                    related_name="+", to="jobs.key")),
            ],
            options={
                "db_table": "jobs_claim_request",
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=["key", "request_id"], name="claim_request_once")],
            },
        ),
    ]
