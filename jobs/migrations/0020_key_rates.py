"""How many requests a key may make, and its bucket of tokens, which all web processes share."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0019_grants")]
    operations = [
        migrations.AddField("key", "requests_per_s", models.PositiveIntegerField(
            null=True, db_comment="Null: as the site says; 0: as many as it likes")),
        migrations.AddField("key", "request_burst", models.PositiveIntegerField(
            null=True, db_comment="Most requests at once; null: those of two seconds")),
        migrations.AddField("key", "rate_tokens", models.FloatField(
            null=True, db_comment="What is in its bucket at rate_at; null: it is full")),
        migrations.AddField("key", "rate_at", models.DateTimeField(null=True)),
    ]
