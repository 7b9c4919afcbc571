"""The second hash of a request that came in process with an idempotency key (B15, E6)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0009_paused")]
    operations = [
        # Null and without a default: no row is written anew.
        migrations.AddField("job", "normal_hash", models.BinaryField(
            null=True, db_comment="Of a keyed request in process: sha256 with the input in normal form (B15)")),
    ]
