"""Grants: roles of Django users and keys in workspaces."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import jobs.clock


class Migration(migrations.Migration):
    dependencies = [("jobs", "0018_claim_requests")]
    operations = [
        migrations.CreateModel(
            name="Grant",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("user_id", models.CharField(
                    max_length=64, null=True, db_comment="The primary key of a Django user, as text")),
                ("role", models.CharField(max_length=16)),
                ("by", models.CharField(max_length=200, db_comment="Who gave it")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("workspace", models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name="grants", to="jobs.workspace")),
                ("key", models.ForeignKey(
                    db_constraint=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="grants",
                    to="jobs.key")),
            ],
            options={
                "db_table": "jobs_grant",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(name="grant_of_one", condition=Q(user_id=None) ^ Q(key=None)),
                    models.CheckConstraint(
                        name="grant_role_known", condition=Q(role__in=("member", "assignee", "conductor"))),
                    models.UniqueConstraint(fields=["user_id", "workspace"], name="grant_of_user_once"),
                    models.UniqueConstraint(fields=["key", "workspace"], name="grant_of_key_once"),
                ],
            },
        ),
        # Keys of a tenant are deleted by SQL, and take their grants along.
        migrations.RunSQL(
            "ALTER TABLE jobs_grant ADD CONSTRAINT jobs_grant_of_key FOREIGN KEY (key_id) REFERENCES jobs_key (id)"
            " ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
            "ALTER TABLE jobs_grant DROP CONSTRAINT jobs_grant_of_key"),
    ]
