"""The defaults that follow a migration, where it goes back, stops early, or is another database's."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("jobs_scratch_default", "jobs_scratch_other")
SCRIPT = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
from django.conf import settings
for alias, name in zip(("default", "other"), sys.argv[1:]):
    settings.DATABASES[alias] = {**settings.DATABASES["default"], "NAME": name}
import django; django.setup()
from django.core.management import call_command
from jobs.models import Tenant, Workspace

def migrate(*words):
    call_command("migrate", *words, verbosity=0)

migrate("jobs", "--database=other")
print(Workspace.objects.using("other").count())
migrate("jobs", "0001")
migrate("jobs")
print(Workspace.objects.count(), Tenant.objects.count())

from jobs.models import ClaimLine, Job
from jobs.services import cancellation, erasure, intake, tenancy
gone = intake.enqueue("noop", target="thing", tenant="gone").id
cancellation.cancel(gone, by="x")
erasure.redact_job(gone, by="x", reason="x")
erasure.delete(tenancy.tenant(tenancy.workspace(), "gone"), by="x", reason="x")
print(Job.objects.filter(target=None).exclude(generation=None).count(), ClaimLine.objects.get().parked)
migrate("jobs", "0009")
migrate("jobs")
print(Job.objects.filter(target=None).count(), ClaimLine.objects.get().parked)
migrate("jobs", "zero")
migrate("jobs")
print(Workspace.objects.count(), Tenant.objects.count())
"""


def test_a_migration_that_makes_no_tables_makes_no_defaults(database: None) -> None:
    """E2: `migrate jobs 0001`, `migrate jobs zero` and `migrate --database=other` end well, erased things too."""
    with connection.cursor() as cursor:
        for name in NAMES:
            # Not by force: a vacuum of the server's own is not ours to end, and makes way by itself.
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
            cursor.execute(f"CREATE DATABASE {name}")
    try:
        done = subprocess.run([sys.executable, "-c", SCRIPT, *NAMES], cwd=ROOT, capture_output=True, text=True,
                              timeout=120)
    finally:
        with connection.cursor() as cursor:
            for name in NAMES:
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n") == ["0", "1 1", "1 deleting", "1 None", "1 1", ""]


BESIDE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
from django.conf import settings
settings.DATABASES["default"] = {**settings.DATABASES["default"], "NAME": sys.argv[1]}
import django; django.setup()
from django.core.management import call_command
from django.db import connection
call_command("migrate", verbosity=0)
call_command("migrate", "jobs", "0008", verbosity=0)
with connection.cursor() as cursor:
    # Of an earlier try that was broken off.
    cursor.execute("CREATE INDEX job_paused ON jobs_job (id)")
call_command("migrate", "jobs", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname IN ('job_paused', 'job_unregistered')")
    print(cursor.fetchall())
"""


def test_an_index_of_jobs_is_built_beside_those_who_write_and_a_broken_try_is_begun_anew(database: None) -> None:
    """E2: a rolling deployment stops nobody."""
    migration = import_module("jobs.migrations.0009_paused")
    assert not migration.Migration.atomic
    assert all("CONCURRENTLY" in sql for sql in (*migration.PAUSED, *migration.UNREGISTERED))
    name = "jobs_scratch_index"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}")
    try:
        done = subprocess.run([sys.executable, "-c", BESIDE, name], cwd=ROOT, capture_output=True, text=True,
                              timeout=120)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {name}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("CREATE INDEX") == 1
    assert "(reason, id) WHERE" in done.stdout
