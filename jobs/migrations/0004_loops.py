"""Recovery's memory of outages is the fleet's, not a process's; the leaders' rows are rewritten in place."""

from django.db import migrations, models

# A few rows, each rewritten once a second: with room on the page none of them leaves an index entry behind.
SET = "ALTER TABLE jobs_leader SET (fillfactor = 20, autovacuum_vacuum_threshold = 500)"
RESET = "ALTER TABLE jobs_leader RESET (fillfactor, autovacuum_vacuum_threshold)"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_storage")]
    operations = [
        migrations.AddField(
            "leader", "hold_until",
            models.DateTimeField(null=True, db_comment="Recovery stands still until then; null: it goes on (E8)")),
        migrations.AddField(
            "leader", "holds",
            models.PositiveSmallIntegerField(db_default=0,
                                             db_comment="Times in a row that it was made to stand still")),
        migrations.AlterField(
            "leader", "ticked_at",
            models.DateTimeField(null=True,
                                 db_comment="Latest round, whoever did it; recovery's judges gaps by it")),
        migrations.RunSQL(SET, RESET),
    ]
