"""Jobs of a throttled type that wait behind their gate: their index, built while workers go on."""

from django.db import migrations, models
from django.db.models import F, Q

# One that an earlier try has left half built is begun anew.
BUILT = [
    "DROP INDEX CONCURRENTLY IF EXISTS job_held_type",
    """CREATE INDEX CONCURRENTLY job_held_type ON jobs_job
    (type, workspace_id, tenant_id, priority DESC, available_at, id) WHERE gate = 'type'""",
]


class Migration(migrations.Migration):
    # An index is built beside others outside of transactions only.
    atomic = False
    dependencies = [("jobs", "0014_throttles")]
    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(BUILT, BUILT[:1])],
            state_operations=[migrations.AddIndex("job", models.Index(
                "type", "workspace", "tenant", F("priority").desc(), "available_at", "id",
                name="job_held_type", condition=Q(gate="type")))]),
    ]
