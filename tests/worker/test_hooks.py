"""Middleware around a run, and the time that a publication hook has (issue 3, B33)."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from jobs import checks, conf
from jobs.models import Artifact
from jobs.worker.context import Stopped
from jobs.worker.middleware import Swallowed, around
from tests.database import rows
from tests.worker.processes import DEFINITIONS, until
from tests.worker.test_atomic import HOOKED, codes, ledger, written

__all__ = ["ledger"]
SPANS = {**HOOKED, "JOBS_MIDDLEWARE": "tests.worker.hooked.span,tests.worker.hooked.inner"}
TYPES = ("spanned", "spanned-thread", "spanned-books")


@pytest.mark.parametrize("type_", TYPES)
def test_middleware_is_entered_in_order_where_the_handler_runs(workers, jobs, tmp_path, type_):
    """Outermost first; the handler sees their contextvars, they see its exceptions; three executors."""
    worker = workers(slots=2, env=SPANS)
    made = {how: (jobs.add(type_, path=str(tmp_path / how), how=how), tmp_path / how)
            for how in ("fine", "refused", "swallowed", "spoilt")}
    job_id, path = made["fine"]
    jobs.wait(job_id, "completed")
    assert path.read_text().splitlines() == ["enter span", "run span,inner", "leave span"]
    for how, code in (("refused", "not_today"), ("swallowed", "attempt_error"), ("spoilt", "spoilt_at_the_end")):
        job_id, path = made[how]
        jobs.wait(job_id, "failed")
        assert codes(jobs, job_id) == [("failed", code)], how
        assert ("run" in path.read_text()) == (how != "refused")
        assert path.read_text().endswith("leave span\n")
        assert ("span saw" in path.read_text()) == (how != "swallowed")
        assert written(job_id) == 0
    message = jobs.attempts(made["swallowed"][0])[0].message
    assert "A middleware swallowed ValueError" in message
    assert "boom" in message
    assert worker.stop() == 0


@pytest.mark.parametrize("thrown", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, Stopped])
def test_what_ends_a_handler_from_outside_cannot_be_swallowed(settings, thrown):
    """A middleware that suppresses everything hides no cancellation, exit or asked-for stop (B26)."""
    settings.JOBS = {**settings.JOBS, "MIDDLEWARE": ["tests.worker.hooked.inner"]}
    run = SimpleNamespace(input={"how": "swallowed_all"})
    with pytest.raises(thrown), around(run):
        raise thrown("told to")
    with pytest.raises(Swallowed, match="LookupError"), around(run):
        raise LookupError
    with around(run):
        pass


@pytest.mark.parametrize(("path", "said"), [
    ("tests.worker.hooked.spam", "tests.worker.hooked.spam"), ("nowhere.at_all", "nowhere.at_all"), ("span", "span"),
    ("tests.worker.hooked.ONCE", "cannot be called"), (5, "5"),
])
def test_middleware_that_is_not_there_is_named_before_anything_runs(settings, path, said):
    """A system check; nothing runs without what the site relies on."""
    settings.JOBS = {**settings.JOBS, "MIDDLEWARE": ["tests.worker.hooked.span", path]}
    [found] = [m for m in checks.check_settings(None) if m.id == "jobs.E020"]
    assert said in found.msg
    with pytest.raises(ImproperlyConfigured):
        conf.middleware()


def test_a_site_without_middleware_has_none(settings):
    """And pays for none."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": DEFINITIONS.split(",")}
    assert conf.middleware() == ()
    assert [m.id for m in checks.check_settings(None)] == []


@pytest.mark.parametrize("type_", ["slow-hook", "slow-hook-thread"])
def test_a_hook_that_takes_too_long_to_commit_fails_its_attempt_and_commits_nothing_later(workers, jobs, tmp_path,
                                                                                         type_):
    """`publish_timeout` after the hook's own time, retryable; its late commit is `too_late` (B33)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = workers(slots=2, env={**HOOKED, "JOBS_PUBLISH_S": "0.3"})
    job_id = jobs.add(type_, path=str(path), gate=str(gate))
    jobs.wait(job_id, "failed")
    [attempt] = jobs.attempts(job_id)
    assert (attempt.reason_code, attempt.retryable) == ("publish_timeout", True)
    assert "within 0.3 s" in attempt.message
    gate.touch()
    until(lambda: "too_late" in path.read_text())
    jobs.wait(jobs.add("echo"), "completed")
    assert not Artifact.objects.filter(job_id=job_id).exists()
    assert worker.stop() == 0


def test_a_hook_that_hangs_after_its_commit_holds_no_slot_of_the_loop_for_ever(workers, jobs, tmp_path):
    """The completion stands, its worker counts it, and the next job runs while the hook still hangs (B33)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = workers(slots=1, env={**HOOKED, "JOBS_PUBLISH_S": "0.3"}, verbosity=2)
    job_id = jobs.add("slow-hook", path=str(path), gate=str(gate), before=True)
    jobs.wait(job_id, "completed")
    worker.wait_for("completed", job=job_id)
    jobs.wait(jobs.add("echo"), "completed")
    assert "already_committed" not in path.read_text()
    gate.touch()
    until(lambda: "already_committed" in path.read_text())
    assert jobs.outcomes(job_id) == ["completed"]
    assert not worker.events("late")
    assert worker.stop() == 0


def test_a_hook_that_hangs_in_a_thread_after_its_commit_is_counted_and_told(workers, jobs, tmp_path):
    """A thread cannot be ended: it keeps its slot, but the attempt is over and somebody says so (B33)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    worker = workers(slots=2, env={**HOOKED, "JOBS_PUBLISH_S": "0.3"}, verbosity=2)
    job_id = jobs.add("slow-hook-thread", path=str(path), gate=str(gate), before=True)
    worker.wait_for("completed", job=job_id)
    worker.wait_for("ignores_stop", job=job_id)
    gate.touch()
    assert jobs.state(job_id) == "completed"
    assert worker.stop() == 0


def test_a_run_out_of_time_before_its_hooks_time_is_an_attempt_that_timed_out(workers, jobs):
    """The earlier of both limits names the reason (B26, B33)."""
    workers(slots=1)
    job_id = jobs.add("published-thread", mode="late")
    jobs.wait(job_id, "failed")
    assert codes(jobs, job_id) == [("failed", "attempt_timeout")]
    assert json.loads(rows("SELECT count(*)::text FROM jobs_artifact")[0][0]) == 0
