"""What importing does and does not do, and whose commands are found."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class

from tests.architecture.source import ROOT, modules, text

RULES = (
    "errors",
    "states",
    "outcomes",
    "retry",
    "leases",
    "routing",
    "codecs",
    "schemas",
    "receipts",
    "definition",
    "declaration",
    "registry",
    "ids",
)


def imported_by(code: str) -> set[str]:
    """The modules that are there after this code ran in a fresh interpreter without any settings."""
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], cwd=ROOT, text=True,
                          capture_output=True, check=True, env={"PYTHONPATH": str(ROOT)}, timeout=60)
    return set(done.stdout.split())


def test_importing_jobs_touches_no_models() -> None:
    """DESIGN 3.3: exports come lazily, so that a definition module can be imported before Django is ready."""
    there = imported_by("import jobs; assert 'job' in jobs.__all__")
    assert not {name for name in there if name.split(".")[0] == "django" or name.startswith("jobs.")}


def test_declaring_a_job_needs_no_django() -> None:
    """DESIGN 3.3, 6: `from jobs import job, JobError, RetryPolicy` and a handler."""
    there = imported_by("from jobs import job, JobError, RetryPolicy\n"
                        "@job('invoice-pdf')\ndef f(run, invoice_id: int) -> str: ...\n"
                        "assert f.definition.name == 'invoice-pdf@1'")
    assert not {name for name in there if name.split(".")[0] == "django"}


@pytest.mark.parametrize("module", RULES)
def test_the_rules_are_plain_python(module: str) -> None:
    """DESIGN 3.3: no Django, no framework, no settings and no clock of ours, indirectly neither."""
    there = imported_by(f"import jobs.{module}")
    assert not there & {"django", "rest_framework", "channels", "psycopg", "jobs.conf", "jobs.clock", "jobs.models"}


def test_jobs_stands_before_channels_and_its_runworker_is_the_one() -> None:
    """Issue 2.6: channels ships a `runworker` too."""
    apps = [app.partition(".")[0] for app in settings.INSTALLED_APPS]
    assert "jobs" in apps
    assert "channels" in apps
    assert apps.index("jobs") < apps.index("channels")
    assert get_commands()["runworker"] in ("jobs", "jobs.apps.JobsConfig")
    assert type(load_command_class("jobs", "runworker")).__module__ == "jobs.management.commands.runworker"


def test_an_unknown_export_is_an_attribute_error() -> None:
    """DESIGN 3.3."""
    import jobs

    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = jobs.nothing_of_ours
    assert all(getattr(jobs, name) is not None for name in jobs.__all__)


def test_a_worker_loads_no_server_no_admin_and_no_endpoint() -> None:
    """A29: each role its own. What runs jobs starts hundreds of times a day, and as a child for many a job."""
    there = imported_by("import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'jobsite.settings'\n"
                        "import django; django.setup()\n"
                        "import jobs.worker.inside, jobs.management.commands.runworker")
    unwanted = ("twisted", "daphne.server", "autobahn", "rest_framework.views", "prometheus_client", "jobs.admin",
                "jobs.pages", "jobs.api", "jobs.metrics", "jobs.consumers", "channels.layers")
    assert not {name for name in there if name.startswith(unwanted)}


def test_who_serves_the_web_runs_no_jobs() -> None:
    """A29: the API, the pages, the admin and the sockets import nothing of the worker, but for what ends an attempt of
    a runner: its definition's publication hook runs where the runner hands in (B33).
    """
    edges = ("jobs/api/", "jobs/pages/", "jobs/admin/", "jobs/consumers.py", "jobs/health.py")
    wrong = {path for path in modules() if path.startswith(edges) and "jobs.worker" in text(path)}
    assert wrong == {"jobs/api/assignments.py", "jobs/api/held_many.py"}
    assert re.findall(r".*jobs\.worker.*", text("jobs/api/assignments.py")) == ["from jobs.worker import handed_in"]
