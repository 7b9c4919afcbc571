"""Owners: whose credential runs a tenant's jobs."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import jobs.clock


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_normal_hash")]
    operations = [
        migrations.CreateModel(
            name="Owner",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("reference", models.CharField(
                    max_length=500, db_comment="Names the secret in the resolver's store; no secret")),
                ("label", models.CharField(blank=True, default="", max_length=200)),
                ("generation", models.PositiveIntegerField(
                    default=1, db_comment="Rises with each credential; attempts bind to it")),
                ("revision", models.PositiveIntegerField(
                    default=1, db_comment="Rises with each change: the ETag")),
                ("concurrency", models.PositiveIntegerField(
                    null=True, db_comment="Most jobs at once; null: OWNER_CONCURRENCY (B36)")),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True, db_comment="Revoked by somebody, or found expired")),
                ("away_until", models.DateTimeField(
                    null=True, db_comment="The resolver had no secret: no job begins before (B24)")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("updated_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("tenant", models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="owner", to="jobs.tenant")),
                ("workspace", models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="owners", to="jobs.workspace")),
            ],
            options={
                "db_table": "jobs_owner",
                "default_permissions": (),
                "indexes": [models.Index("expires_at", name="owner_expiry",
                                         condition=Q(revoked_at__isnull=True, expires_at__isnull=False))],
                "constraints": [
                    models.CheckConstraint(name="owner_concurrency_positive",
                                           condition=Q(concurrency=None) | Q(concurrency__gte=1)),
                ],
            },
        ),
    ]
