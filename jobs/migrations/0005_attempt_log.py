"""The last log lines of attempts, beside them."""

import django.db.models.deletion
from django.db import migrations, models

import jobs.clock


class Migration(migrations.Migration):
    dependencies = [("jobs", "0004_loops")]
    operations = [
        migrations.CreateModel(
            name="AttemptLog",
            fields=[
                ("attempt", models.OneToOneField(
                    db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True,
                    related_name="log", serialize=False, to="jobs.attempt")),
                ("lines", models.TextField(db_comment="At most 200 lines and 64 Ki characters")),
                ("dropped", models.PositiveIntegerField(db_comment="How many earlier lines had to go")),
                ("at", models.DateTimeField(db_default=jobs.clock.Now())),
            ],
            options={"db_table": "jobs_attempt_log"},
        ),
    ]
