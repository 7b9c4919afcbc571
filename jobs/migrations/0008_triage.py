"""Dead letters in clusters, and answers to many of them at once."""

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models import Q

import jobs.clock

OPEN = Q(resolved_at__isnull=True)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0007_traffic")]
    operations = [
        migrations.CreateModel(
            name="BulkAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("token", models.UUIDField(
                    unique=True, db_comment="Of the form that asked: sent twice it is still one answer")),
                ("verb", models.CharField(max_length=16)),
                ("by", models.CharField(max_length=200)),
                ("reason", models.CharField(max_length=512)),
                ("workspace_id", models.BigIntegerField(null=True)),
                ("tenant_id", models.BigIntegerField(null=True)),
                ("type", models.CharField(max_length=64, null=True)),
                ("letter_reason", models.CharField(max_length=64, null=True)),
                ("cluster", models.CharField(max_length=16, null=True)),
                ("since", models.DateTimeField(null=True)),
                ("house", models.BooleanField(
                    default=False, db_comment="The letters of the house's own jobs, and no others (E11)")),
                ("letters", django.contrib.postgres.fields.ArrayField(
                    base_field=models.BigIntegerField(), null=True, size=None, db_comment="A selection by hand")),
                ("upto", models.BigIntegerField(db_comment="Letters opened later are not meant")),
                ("expected", models.IntegerField(
                    db_comment="Open at its making; 100,001: more than 100,000")),
                ("after", models.BigIntegerField(default=0, db_comment="The last letter that was looked at")),
                ("done", models.IntegerField(default=0)),
                ("skipped", models.JSONField(
                    default=dict, db_comment="How many were left alone, by the code of the refusal")),
                ("canary", models.BooleanField(
                    default=False, db_comment="One first; the rest when its job has completed")),
                ("canary_letter", models.BigIntegerField(null=True)),
                ("rate", models.IntegerField(null=True, db_comment="Letters a second at most")),
                ("most_failed", models.IntegerField(
                    null=True, db_comment="Percent of failures again at which it stops itself")),
                ("created_at", models.DateTimeField(db_default=jobs.clock.Now())),
                ("going_at", models.DateTimeField(
                    null=True, db_comment="When the rest was let go after the canary")),
                ("moved_at", models.DateTimeField(null=True, db_comment="Of the latest batch")),
                ("ended_at", models.DateTimeField(null=True)),
                ("end", models.CharField(max_length=32, null=True)),
                ("ended_by", models.CharField(max_length=200, null=True)),
            ],
            options={
                "db_table": "jobs_bulk_answer",
                "default_permissions": ("view",),
                "indexes": [models.Index("id", name="bulk_answer_open", condition=Q(ended_at__isnull=True))],
                "constraints": [
                    models.CheckConstraint(name="bulk_answer_verb_known",
                                           condition=Q(verb__in=["requeue", "discard"])),
                    models.CheckConstraint(name="bulk_answer_ended_with_end",
                                           condition=Q(ended_at__isnull=True, end__isnull=True)
                                           | Q(ended_at__isnull=False, end__isnull=False)),
                    models.CheckConstraint(name="bulk_answer_counts",
                                           condition=Q(done__gte=0, expected__gte=0, after__gte=0)),
                ],
            },
        ),
        # No column rewrites the table, and workers of the release before write letters without them.
        migrations.AddField("deadletter", "version", models.IntegerField(null=True)),
        migrations.AddField("deadletter", "house", models.BooleanField(
            default=False, db_default=False, db_comment="Of a job that the house makes for itself (E11)")),
        migrations.AddField("deadletter", "error", models.CharField(
            max_length=200, null=True,
            db_comment="Of the last failure without what differs; empty: none; null: not read yet")),
        migrations.AddField("deadletter", "cluster", models.CharField(
            max_length=16, null=True,
            db_comment="Digest of definition, reason, code and error: letters with one are alike")),
        migrations.AddField("deadletter", "bulk_id", models.BigIntegerField(
            null=True, db_comment="The bulk answer that answered it")),
        migrations.AddIndex("deadletter", models.Index(
            fields=["id"], name="dead_letter_grouped", condition=OPEN,
            include=["cluster", "tenant_id", "house"])),
        migrations.AddIndex("deadletter", models.Index("cluster", "id", name="dead_letter_cluster", condition=OPEN)),
        migrations.AddIndex("deadletter", models.Index(
            "id", name="dead_letter_unread", condition=Q(resolved_at__isnull=True, cluster__isnull=True))),
        migrations.AddIndex("deadletter", models.Index(
            "bulk_id", "id", name="dead_letter_bulk", condition=Q(bulk_id__isnull=False))),
    ]
