"""A worker that was frozen while its job was deleted or redacted: it changes nothing, and works on (B38, E14.21)."""

from __future__ import annotations

import signal

from jobs.models import Artifact, Attempt, AttemptLog, Erasure, Job
from jobs.services import erasure, intake, tenancy
from tests import database as db
from tests.making import default_workspace
from tests.worker.processes import until


def test_a_frozen_worker_whose_tenant_is_deleted_changes_nothing_and_works_on(workers, jobs, tmp_path):
    """B38, E14.21: settles and log lines of jobs that are gone bring nothing back, in a thread and on the loop."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [intake.enqueue(type_, {"path": str(path), "gate": str(gate)}, tenant="acme").id
            for type_ in ("gated", "gated-thread")]
    worker = workers("--no-loops")
    until(lambda: path.exists() and path.read_text().count("start") == 2)
    worker.signal(signal.SIGSTOP)
    begun = erasure.delete(tenancy.tenant(default_workspace(), "acme"), by="user:x", reason="they left")
    duty = erasure.Erasures()
    while duty.tick():
        pass
    db.pass_time(30)
    until(lambda: not duty.tick() and Erasure.objects.get(pk=begun.pk).end == "finished")
    assert not Job.objects.filter(pk__in=made).exists()
    gate.touch()
    worker.signal(signal.SIGCONT)
    for job_id in made:
        until(lambda job_id=job_id: worker.events("claim_lost", job=job_id) or worker.events("late", job=job_id))
    jobs.wait(jobs.add("echo"), "completed")
    assert worker.stop() == 0
    assert Job.objects.count() == Artifact.objects.count() == Attempt.objects.count() == 1
    assert not AttemptLog.objects.exclude(attempt__job__type="echo").exists()
