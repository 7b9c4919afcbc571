"""Room for in-page updates on attempts, and vacuum that keeps up with tables in which every row moves."""

from django.db import migrations

VACUUM = """autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1"""

# A heartbeat changes no indexed column: with free space on its page it leaves no new index entry.
SET = f"""
ALTER TABLE jobs_attempt SET (fillfactor = 80, {VACUUM});
ALTER TABLE jobs_job SET ({VACUUM});
ALTER TABLE jobs_claim_line SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE jobs_attempt_cap SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
"""

RESET = """
ALTER TABLE jobs_attempt RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_delay);
ALTER TABLE jobs_job RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_analyze_scale_factor, autovacuum_vacuum_cost_delay);
ALTER TABLE jobs_claim_line RESET (fillfactor, autovacuum_vacuum_scale_factor);
ALTER TABLE jobs_attempt_cap RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_tables")]
    operations = [migrations.RunSQL(SET, RESET)]
