"""Archive, deletion and redaction: states of a tenant, what is being erased, and jobs that let go of their target."""

import django.db.models.deletion
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import Q

import jobs.clock

# What the constraints before this migration know no word for: redacted jobs, and tenants on their way out.
BACK = [
    "UPDATE jobs_job SET generation = NULL WHERE target_id IS NULL AND generation IS NOT NULL",
    "UPDATE jobs_claim_line SET parked = NULL WHERE parked = 'deleting'",
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0011_owners")]
    operations = [
        migrations.AddField("tenant", "archived_by", models.CharField(max_length=200, null=True)),
        migrations.AddField("tenant", "archive_reason", models.CharField(max_length=512, null=True)),
        migrations.AddField("tenant", "deleting_at", models.DateTimeField(
            null=True, db_comment="Set: it is being deleted for good; never unset (B38)")),
        migrations.RemoveConstraint("claimline", "line_parked_known"),
        migrations.AlterField("claimline", "parked", models.CharField(
            max_length=8, null=True, db_comment="cap, paused, deleting or null; each end clears its own word")),
        migrations.AddConstraint("claimline", models.CheckConstraint(
            name="line_parked_known", condition=Q(parked=None) | Q(parked__in=["cap", "paused", "deleting"]))),
        migrations.AlterField("job", "target", models.ForeignKey(
            db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT,
            related_name="jobs", to="jobs.target", db_comment="Null too where it was redacted; no foreign key: "
            "deleting a target would read all jobs")),
        migrations.RemoveConstraint("job", "job_target_has_generation"),
        # Every row obeys it already: it says less than the one before, so that nothing need be read under a lock.
        AddConstraintNotValid("job", models.CheckConstraint(
            name="job_target_with_generation", condition=Q(target__isnull=True) | Q(generation__isnull=False))),
        migrations.RunSQL(migrations.RunSQL.noop, BACK),
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
                ],
            },
        ),
        migrations.CreateModel(
            name="Erasure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workspace_id", models.BigIntegerField()),
                ("tenant_id", models.BigIntegerField(db_comment="No foreign key: the tenant goes, this stays")),
                ("verb", models.CharField(max_length=16)),
                ("by", models.CharField(max_length=200)),
                ("reason", models.CharField(max_length=512)),
                ("phase", models.CharField(max_length=16, db_comment="stopping, waiting, erasing, or redacting")),
                ("after", models.UUIDField(null=True, db_comment="The last job that this pass has looked at")),
                ("unfinished", models.BooleanField(
                    default=False, db_comment="This pass did or left something: another follows")),
                ("wait_until", models.DateTimeField(
                    null=True, db_comment="Holders of ended attempts hear of it until then")),
                ("counts", models.JSONField(
                    default=dict, db_comment="Rows that are gone or emptied, by table; jobs that ended")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("moved_at", models.DateTimeField(null=True, db_comment="Of the latest batch")),
                ("ended_at", models.DateTimeField(null=True)),
                ("end", models.CharField(max_length=32, null=True)),
            ],
            options={
                "db_table": "jobs_erasure",
                "default_permissions": ("view",),
                "constraints": [
                    models.CheckConstraint(name="erasure_verb_known", condition=Q(verb__in=["delete", "redact"])),
                    models.CheckConstraint(name="erasure_ended_with_end",
                                           condition=Q(ended_at__isnull=True, end__isnull=True)
                                           | Q(ended_at__isnull=False, end__isnull=False)),
                    models.UniqueConstraint(name="erasure_one_open", fields=["tenant_id"],
                                            condition=Q(ended_at__isnull=True)),
                ],
            },
        ),
    ]
