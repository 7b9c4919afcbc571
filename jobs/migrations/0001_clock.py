"""The one clock, before any table that stores its moments. Tests replace it to pass time."""

from django.db import migrations

CREATE = """
CREATE OR REPLACE FUNCTION jobs_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT statement_timestamp()';
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [migrations.RunSQL(CREATE, "DROP FUNCTION jobs_now();")]
