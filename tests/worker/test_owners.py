"""Handlers with an owner's credential: it reaches them, nothing keeps it, and a rotation is felt at once (B35, E10)."""

from __future__ import annotations

from pathlib import Path

from jobs.models import Attempt, Job
from jobs.services import intake, owners
from tests.database import rows
from tests.making import tenant_id
from tests.owned import SECRET, STORE, put
from tests.worker.processes import DEFINITIONS, until

OWNED = f"{DEFINITIONS},tests.owned"
LEAKS = ("log", "raise", "code", "artifact", "checkpoint")


def ended(*ids: str) -> bool:
    return not Job.objects.filter(pk__in=ids, ended_at=None).exists()


def test_a_credential_reaches_its_handler_and_is_kept_nowhere(workers, settings, tmp_path: Path) -> None:
    """E10, E15: in threads, on the loop and in children; absent from every row, line and word of the worker.

    Then a rotation: what runs is interrupted within a second and runs again with the new one; and a resolver without an
    answer puts a job off, which is no failure.
    """
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": OWNED.split(","), "CREDENTIAL_RESOLVER": "tests.owned.resolve"}
    (tmp_path / "first").write_text(SECRET)
    (tmp_path / "second").write_text("another-secret-4711")
    put("first", concurrency=4)
    seen = tmp_path / "seen"
    worker = workers(slots=4, env={"JOBS_DEFINITIONS": OWNED, "JOBS_CREDENTIAL_RESOLVER": "tests.owned.resolve",
                                   STORE: str(tmp_path)})
    made = {(type_, how): intake.enqueue(type_, {"how": how}).id
            for type_ in ("owned-thread", "owned-apart") for how in LEAKS}
    plain = intake.enqueue("owned", {"path": str(seen)}).id
    until(lambda: ended(plain, *made.values()), 60)
    assert SECRET in seen.read_text()
    for (type_, how), id_ in made.items():
        failed = Attempt.objects.get(job_id=id_)
        assert (failed.outcome == "completed") is (how == "log"), (type_, how, failed.message)
        if how != "log":
            assert failed.reason_code == {"artifact": "secret_in_artifact", "raise": "attempt_error",
                                          "code": "not_allowed", "checkpoint": "secret_in_checkpoint"}[how]
    assert "[credential]" in Attempt.objects.get(job_id=made["owned-apart", "raise"]).message
    lines = until(lambda: rows("SELECT lines FROM jobs_attempt_log l JOIN jobs_attempt a ON a.id = l.attempt_id"
                               " WHERE a.job_id = %s", made["owned-apart", "log"]), 15)[0][0]
    assert "printed [credential]" in lines
    assert "have [credential]" in lines
    assert "to stderr [credential]" in lines

    running = intake.enqueue("owned-thread", {"how": "wait", "path": str(seen)}).id
    until(lambda: running in seen.read_text(), 30)
    put("second", concurrency=4)
    until(lambda: f"{running} 2 another-secret-4711" in seen.read_text(), 10)
    cut = Attempt.objects.get(job_id=running, number=1)
    assert (cut.outcome, cut.reason_code) == ("interrupted", "credential_rotated")
    assert Job.objects.get(pk=running).failures == 0
    owners.revoke(tenant_id(), by="person:1")
    until(lambda: Job.objects.get(pk=running).state == "paused", 10)
    worker.wait_for("claim_lost", 15, job=running, attempt=2)

    put("nothing", concurrency=4)
    until(lambda: Attempt.objects.filter(job_id=running, reason_code="owner_unavailable", outcome="interrupted"), 30)
    assert Job.objects.get(pk=running).failures == 0
    worker.stop()
    said = worker.log + repr(worker.lines) + "".join(worker.plain)
    for secret in (SECRET, "s3cr3t", "another-secret-4711"):
        assert secret not in said
        for (table,) in rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            assert rows(f"SELECT count(*) FROM {table} t WHERE position(%s in t::text) > 0", secret) == [(0,)], table
