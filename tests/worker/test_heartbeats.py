"""Leases are kept by a thread of its own, whatever the handlers and other people's transactions do (E8, A45)."""

from __future__ import annotations

import psycopg
from django.db import transaction

from jobs.models import Receipt, Worker
from jobs.services import cancellation
from tests.database import rows
from tests.worker.processes import database_url, until


def test_a_job_longer_than_its_leases_keeps_them_all(workers, jobs, tmp_path):
    """Eight seconds under a lease of three, with recovery looking each second: one attempt (case-A04)."""
    workers()
    workers("--no-listen", slots=1, groups="chat")
    path, gate = tmp_path / "trace", tmp_path / "gate"
    made = [jobs.add(type_, path=str(path), gate=str(gate)) for type_ in ("gated", "gated-thread")]
    until(lambda: rows("SELECT count(*) = 2 FROM jobs_attempt WHERE jobs_now() - leased_at > interval '8 s'")[0][0], 15)
    gate.touch()
    for job_id in made:
        job = jobs.wait(job_id, "completed")
        assert (job.claims, job.lapses) == (1, 0)
        kinds = list(Receipt.objects.filter(job_id=job_id).order_by("number").values_list("kind", flat=True))
        # Renewals move the lease alone (E12).
        assert kinds == ["job.enqueued", "job.leased", "job.heartbeat", "job.completed"]
    assert path.read_text().count("start") == 2


def test_the_first_heartbeat_comes_after_a_second_and_makes_it_running(workers, jobs, tmp_path):
    """Short jobs go from leased to their end (E1)."""
    workers()
    path, gate = tmp_path / "trace", tmp_path / "gate"
    short, long = jobs.add("echo"), jobs.add("gated", path=str(path), gate=str(gate))
    jobs.wait(long, "running", seconds=5)
    [attempt] = jobs.attempts(long)
    assert 0.9 < (attempt.started_at - attempt.leased_at).total_seconds() < 3
    jobs.wait(short, "completed")
    assert jobs.attempts(short)[0].started_at is None
    gate.touch()
    jobs.wait(long, "completed")


def test_a_loop_that_a_handler_blocks_loses_no_lease_and_is_reported(workers, jobs, tmp_path):
    """time.sleep for two leases in a coroutine, with another beside it: one attempt each, and a warning (case-A09)."""
    worker = workers(slots=2)
    workers("--no-listen", slots=1, groups="chat")
    path = tmp_path / "trace"
    made = [jobs.add("gated", path=str(path), gate=str(path)), jobs.add("blocks", seconds=6.5, path=str(path))]
    for job_id in made:
        job = jobs.wait(job_id, "completed", seconds=12)
        assert (job.claims, job.lapses) == (1, 0)
    assert "blocks@1" in worker.wait_for("loop_blocked")["types"]
    assert worker.wait_for("loop_free")["blocked_s"] > 4
    assert worker.log == ""


def test_somebodys_open_transaction_over_one_job_costs_the_others_no_lease(workers, jobs, tmp_path):
    """A first heartbeat waits for a locked row, but not for longer than the leases of its neighbours (E14.8)."""
    path, gate = tmp_path / "trace", tmp_path / "gate"
    workers()
    made = [jobs.add("gated", path=str(path), gate=str(gate)) for _ in range(3)]
    until(lambda: path.exists() and path.read_text().count("start") == 3)
    with transaction.atomic(), psycopg.connect(database_url(), autocommit=True) as other:
        cancellation.cancel(made[0], by="user:test")
        look = "SELECT count(*) FROM jobs_attempt WHERE lease_until > leased_at + interval '5 s' AND job_id = ANY(%s)"
        until(lambda: other.execute(look, [made[1:]]).fetchone()[0] == 2, 12)
        states = "SELECT count(*) FROM jobs_job WHERE state = 'running' AND id = ANY(%s)"
        assert other.execute(states, [made[1:]]).fetchone()[0] == 2
    gate.touch()
    for job_id in made[1:]:
        assert jobs.wait(job_id, "completed").lapses == 0
    assert jobs.state(made[0]) == "cancelled"


def test_a_worker_has_a_row_that_says_what_it_can_run(workers, jobs, tmp_path):
    """Registered with its `type@version` list, stopped in order; another life is another row (E7, case-A15)."""
    worker = workers(slots=3, name="me", queues="collect,chat")
    row = Worker.objects.get(pk=worker.worker_id)
    assert (row.name, row.pid, row.slots, row.stopped_at) == ("me", worker.pid, 3, None)
    assert row.queues == ["collect", "chat"]
    assert {"noop@1", "echo@1", "gated@1"} <= set(row.types)
    assert "outside@1" not in row.types
    assert worker.stop() == 0
    row.refresh_from_db()
    assert row.stopped_at is not None
    assert row.running == 0


def test_its_row_is_seen_again_and_again(workers, jobs, monkeypatch):
    """`seen_at` moves and `running` counts; in this process, with a shorter interval."""
    import io
    import threading

    from jobs.worker import heartbeat
    from jobs.worker.output import Output
    from jobs.worker.plan import Plan
    from jobs.worker.runner import Worker as Running

    monkeypatch.setattr(heartbeat, "ROW_EVERY_S", 0.3)
    made = Running(Plan("here", 1, ["default"], ["collect"]), Output(io.StringIO()))
    row = Worker.objects.get(pk=made.row.id)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        for _ in range(2):
            seen = row.seen_at
            until(lambda seen=seen: (row.refresh_from_db(), row.seen_at > seen)[1], 5)
    finally:
        made.ask_stop()
        thread.join(10)
    assert not thread.is_alive()
