"""Paused jobs by their reason: one index for another, built while workers go on."""

from django.db import migrations, models
from django.db.models import Q


def built(name: str, rest: str) -> list[str]:
    """Without a lock on those who write; one that an earlier try has left half built is begun anew."""
    return [f"DROP INDEX CONCURRENTLY IF EXISTS {name}", f"CREATE INDEX CONCURRENTLY {name} ON jobs_job {rest}"]


PAUSED = built("job_paused", "(reason, id) WHERE state = 'paused'")
UNREGISTERED = built("job_unregistered", "(id) WHERE reason = 'unregistered_type' AND state = 'paused'")


class Migration(migrations.Migration):
    # An index is built beside others outside of transactions only.
    atomic = False
    dependencies = [("jobs", "0008_triage")]
    operations = [
        # Jobs paused for want of a type are found by the new one too, in the order of their ids.
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL([*PAUSED, UNREGISTERED[0]], [*UNREGISTERED, PAUSED[0]])],
            state_operations=[
                migrations.RemoveIndex("job", "job_unregistered"),
                migrations.AddIndex("job", models.Index("reason", "id", name="job_paused",
                                                        condition=Q(("state", "paused")))),
            ]),
    ]
