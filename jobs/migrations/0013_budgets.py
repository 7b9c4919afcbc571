"""Retry budgets of tenants and the windows in which they are spent, costs of jobs, and limits that carry an ETag."""

from django.db import migrations, models
from django.db.models import Q


def dollars(comment: str) -> models.DecimalField:
    """An amount of US dollars."""
    return models.DecimalField(decimal_places=9, max_digits=20, null=True, db_comment=comment)


class Migration(migrations.Migration):
    dependencies = [("jobs", "0012_erasure")]
    operations = [
        migrations.AddField("limits", "max_cost_usd_cap", dollars("Largest max_cost_usd a request may ask (C12)")),
        migrations.AddField("limits", "retry_budget", models.PositiveIntegerField(
            null=True, db_comment="Restarts after failures, and requeues, of a tenant in a window (C20)")),
        migrations.AddField("limits", "retry_budget_window_s", models.PositiveIntegerField(
            null=True, db_comment="Length of that window (C20)")),
        migrations.AddField("limits", "revision", models.PositiveIntegerField(
            db_default=1, db_comment="Rises with each change: the ETag (C36)")),
        migrations.AddConstraint("limits", models.CheckConstraint(
            name="limits_max_cost_not_negative", condition=Q(max_cost_usd_cap=None) | Q(max_cost_usd_cap__gte=0))),
        migrations.AddConstraint("limits", models.CheckConstraint(
            name="limits_retry_window_positive",
            condition=Q(retry_budget_window_s=None) | Q(retry_budget_window_s__gte=1))),
        # Null without a default: no row is written anew, and workers of the release before need not know them.
        migrations.AddField("job", "max_cost_usd", dollars("Most that it may cost over all its attempts (C12)")),
        migrations.AddField("job", "cost_usd", dollars(
            "What its attempts have reported so far; null: nothing (C12)")),
        migrations.AddField("attempt", "cost_usd", dollars(
            "What it has cost by its holder's word; null: nothing was said (C12)")),
        migrations.CreateModel(
            name="TenantWindow",
            fields=[
                ("pk", models.CompositePrimaryKey(
                    "tenant_id", "kind", blank=True, editable=False, primary_key=True, serialize=False)),
                ("tenant_id", models.BigIntegerField()),
                ("kind", models.CharField(max_length=8, db_comment="retry or requeue")),
                ("began_at", models.DateTimeField()),
                ("spent", models.PositiveIntegerField()),
            ],
            options={
                "db_table": "jobs_tenant_window",
                "default_permissions": (),
                "constraints": [models.CheckConstraint(
                    name="window_kind_known", condition=Q(kind__in=["retry", "requeue"]))],
            },
        ),
    ]
