"""What happened by minute."""

import django.contrib.postgres.fields
from django.db import migrations, models

COUNTS = {
    "enqueued": None, "claimed": None, "completed": "Attempts, as are those up to stopped",
    "erred": "Attempts that their holder called failed", "lapsed": None, "released": None, "interrupted": None,
    "stopped": "Attempts ended by a stop, a cancel or a pause", "failed": "Jobs that ended so, as are the next two",
    "cancelled": None, "superseded": None, "letters_opened": None, "letters_answered": None,
    "waited_us": "From when they could be claimed until they were",
    "ran_us": "From claim to end, of attempts that ended",
}


class Migration(migrations.Migration):
    dependencies = [("jobs", "0006_permissions")]
    operations = [
        migrations.CreateModel(
            name="Traffic",
            fields=[
                ("pk", models.CompositePrimaryKey("minute", "worker_group", "queue", blank=True, editable=False,
                                                  primary_key=True, serialize=False)),
                ("minute", models.DateTimeField(
                    db_comment="Of the flush, by the database's clock: a few seconds after the fact")),
                ("worker_group", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                *((name, models.BigIntegerField(db_comment=said, default=0)) for name, said in COUNTS.items()),
                ("waits", django.contrib.postgres.fields.ArrayField(
                    base_field=models.BigIntegerField(), db_comment="Spans by bits of their microseconds",
                    default=list, size=None)),
                ("runs", django.contrib.postgres.fields.ArrayField(
                    base_field=models.BigIntegerField(), default=list, size=None)),
            ],
            options={"db_table": "jobs_traffic", "verbose_name_plural": "traffic"},
        ),
        # Rows of the present minute are written again and again; with room on their page no index is touched.
        migrations.RunSQL("ALTER TABLE jobs_traffic SET (fillfactor = 50)",
                          "ALTER TABLE jobs_traffic RESET (fillfactor)"),
    ]
