"""Bulk operations over jobs as well as letters, with an outcome for each; answers to letters with their actor."""

from django.db import migrations, models
from django.db.models import Q

# An operation that is under way goes on gathering behind the letter that it has come to; what it counted stays.
FORTH = ["UPDATE jobs_bulk_operation SET mark = after::text, after = 0 WHERE ended_at IS NULL",
         "UPDATE jobs_bulk_operation SET after = 0 WHERE ended_at IS NOT NULL"]
# What the release before knows no word for goes; what is under way begins anew, and answers nothing twice.
BACK = ["DELETE FROM jobs_bulk_operation WHERE about = 'jobs'",
        "UPDATE jobs_bulk_operation SET expected = 100001 WHERE expected IS NULL",
        "UPDATE jobs_bulk_operation SET after = 0 WHERE ended_at IS NULL"]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0015_throttles_held")]
    operations = [
        migrations.RemoveConstraint("bulkanswer", "bulk_answer_verb_known"),
        migrations.RemoveConstraint("bulkanswer", "bulk_answer_ended_with_end"),
        migrations.RemoveConstraint("bulkanswer", "bulk_answer_counts"),
        migrations.RenameModel("BulkAnswer", "BulkOperation"),
        # Under a name of its own: a worker of the release before knows two verbs, and would take any third for the
        # second of them. It finds no table, and leaves bulk operations to others.
        migrations.AlterModelTable("bulkoperation", "jobs_bulk_operation"),
        migrations.RenameIndex("bulkoperation", new_name="bulk_open", old_name="bulk_answer_open"),
        migrations.AlterField("bulkoperation", "id", models.BigAutoField(primary_key=True, serialize=False)),
        migrations.AlterField("bulkoperation", "token", models.UUIDField(
            unique=True, db_comment="Of the form that asked: sent twice it is still one operation")),
        migrations.AddField("bulkoperation", "about", models.CharField(
            max_length=8, default="letters", db_default="letters", db_comment="letters or jobs")),
        migrations.AddField("bulkoperation", "allow_archived", models.BooleanField(
            default=False, db_default=False, db_comment="May cancel jobs of archived tenants (B37)")),
        migrations.AddField("bulkoperation", "limited", models.BooleanField(
            default=False, db_default=False, db_comment="Bound by the tenants' rates (C28)")),
        migrations.AddField("bulkoperation", "until", models.DateTimeField(null=True)),
        migrations.AlterField("bulkoperation", "upto", models.BigIntegerField(
            null=True, db_comment="Letters opened later are not meant")),
        migrations.AddField("bulkoperation", "job_filter", models.JSONField(
            null=True, db_comment="Which jobs are meant, where it is about jobs")),
        migrations.AlterField("bulkoperation", "expected", models.IntegerField(
            null=True,
            db_comment="Counted at its making; 100,001: more than 100,000; null: it would have taken too long")),
        migrations.AddField("bulkoperation", "mark", models.TextField(
            null=True, db_comment="The last job or letter that gathering has looked at")),
        migrations.AddField("bulkoperation", "gathered", models.IntegerField(
            default=0, db_default=0, db_comment="Items in the frozen set so far")),
        migrations.AddField("bulkoperation", "total", models.IntegerField(
            null=True, db_comment="Items of the frozen set; null while they are gathered")),
        migrations.AlterField("bulkoperation", "after", models.BigIntegerField(
            default=0, db_comment="The number of the last item that was looked at")),
        migrations.AlterField("bulkoperation", "rate", models.IntegerField(
            null=True, db_comment="Items a second at most")),
        migrations.RunSQL(FORTH, BACK),
        migrations.AddConstraint("bulkoperation", models.CheckConstraint(
            name="bulk_verb_known",
            condition=Q(about="letters", verb__in=["requeue", "discard"], upto__isnull=False)
            | Q(about="jobs", verb__in=["cancel", "pause", "resume"], job_filter__isnull=False))),
        migrations.AddConstraint("bulkoperation", models.CheckConstraint(
            name="bulk_ended_with_end",
            condition=Q(ended_at__isnull=True, end__isnull=True) | Q(ended_at__isnull=False, end__isnull=False))),
        migrations.AddConstraint("bulkoperation", models.CheckConstraint(
            name="bulk_counts", condition=Q(done__gte=0, after__gte=0, gathered__gte=0))),
        migrations.AddIndex("bulkoperation", models.Index(
            "tenant_id", "id", name="bulk_by_tenant", condition=Q(tenant_id__isnull=False))),
        migrations.CreateModel(
            name="BulkItem",
            fields=[
                ("pk", models.CompositePrimaryKey(
                    "bulk_id", "number", blank=True, editable=False, primary_key=True, serialize=False)),
                ("bulk_id", models.BigIntegerField()),
                ("number", models.IntegerField(db_comment="Its place in the frozen set, from 1")),
                ("job_id", models.UUIDField()),
                ("letter_id", models.BigIntegerField(null=True)),
                ("outcome", models.CharField(
                    max_length=64, null=True, db_comment="done, or the code of the refusal; null: to come")),
            ],
            options={
                "db_table": "jobs_bulk_item",
                "default_permissions": ("view",),
                "indexes": [models.Index("job_id", name="bulk_item_by_job")],
            },
        ),
        migrations.AlterField("deadletter", "bulk_id", models.BigIntegerField(
            null=True, db_comment="The bulk operation that answered it")),
        migrations.AddField("deadletter", "answer_key", models.CharField(
            max_length=200, null=True, db_comment="The idempotency key of its answer (C27)")),
        migrations.AddField("deadletter", "actor_kind", models.CharField(
            max_length=32, null=True, db_comment="Who answered, as a key attested it (C28)")),
        migrations.AddField("deadletter", "actor_ref", models.CharField(
            max_length=120, null=True, db_comment="Who answered, as a key attested it (C28)")),
        migrations.AddField("limits", "requeue_rate", models.PositiveIntegerField(
            null=True, db_comment="Most requeues of a tenant in a window (C28)")),
        migrations.AddField("limits", "requeue_window_s", models.PositiveIntegerField(
            null=True, db_comment="That window in seconds; null: 60 (C28)")),
    ]
