"""Rows that a hand has spoilt stop nobody: no worker, no loop, no list and no person who ends what runs (issue 5)."""

from __future__ import annotations

import math
import uuid

import pytest
from django.db import DataError

from jobs import clock
from jobs.codecs import stored
from jobs.conf import registry
from jobs.models import Attempt, Job
from jobs.outcomes import Interrupted
from jobs.services import assignments, owners, progress, settlement, stages
from jobs.services.assignments import Claimed
from jobs.store import due
from jobs.store.moves import Moved
from jobs.store.spoilt import Unclaimable
from jobs.worker.context import Run
from jobs.worker.executor import run_sync
from jobs.worker.heartbeat import Heartbeats
from jobs.worker.slots import Live, Slots
from tests import database as db
from tests.driver import Driver, check, claimer, done
from tests.making import tenant_id
from tests.owned import put

pytestmark = pytest.mark.usefixtures("database")
# No JSON, JSON of another shape, cut off, and nested deeper than the reader goes.
SPOILT = ("{", "[]", '"text"', '{"generation":', "[" * 100_000, "nul")


def spoil(table: str, column: str, value: str, where: str, *params: object) -> None:
    assert db.rows(f"UPDATE {table} SET {column} = %s WHERE {where} RETURNING 1", value, *params)


def run_of(job: Claimed) -> Run:
    return Run(job, registry().exact(job.type, job.version), "worker:test")


@pytest.mark.parametrize("text", SPOILT)
def test_what_a_row_keeps_is_its_value_or_nothing(text: str) -> None:
    """Never an exception."""
    assert stored(text) in (None, [], "text")
    assert (stored(None), stored(""), stored("0"), stored('{"a":1}')) == (None, None, 0, {"a": 1})


@pytest.mark.parametrize("text", SPOILT)
def test_a_spoilt_command_is_told_and_consumed_as_any_other(driver: Driver, text: str) -> None:
    """A6: one that cannot be read hides none behind it."""
    id_ = driver.enqueue()
    sent = [driver.send(id_, "steer", {"n": n}).command for n in range(2)]
    spoil("jobs_command", "payload", text, "id = %s", sent[0])
    job = driver.claim_one()
    first, second = run_of(job).commands()
    assert (first.payload, second.payload) == (stored(text), {"n": 1})
    assert driver.consume(job, first.id, second.id) == 2


@pytest.mark.parametrize("text", SPOILT)
def test_a_spoilt_stage_is_none_and_the_next_one_is_recorded(driver: Driver, text: str) -> None:
    """B30: a list that holds such a job is a list still."""
    id_ = driver.enqueue("staged")
    job = driver.claim_one()
    spoil("jobs_job", "progress", text, "id = %s", id_)
    row = Job.objects.get(pk=id_)
    assert (stages.latest(row), stages.entries(row)) == (None, [])
    run_of(job).progress("read")
    told = stages.latest(Job.objects.get(pk=id_))
    assert told is not None
    assert told["stage"] == "read"


@pytest.mark.parametrize("text", SPOILT)
def test_a_spoilt_checkpoint_is_none_and_the_next_one_is_kept(driver: Driver, text: str) -> None:
    """C33: what cannot be read is begun anew, under the next number."""
    id_ = driver.enqueue()
    first = driver.claim_one()
    progress.next_checkpoint(id_, first.fence, {"page": 1}, "worker:test")
    spoil("jobs_job", "checkpoint", text, "id = %s", id_)
    driver.release(first)
    again = run_of(driver.claim_one())
    assert again.last_checkpoint == stored(text)
    assert again.checkpoint({"page": 2}) == 2


@pytest.mark.usefixtures("owned_site")
@pytest.mark.parametrize("text", [*SPOILT, '{"owner":1}', '{"generation":1}', '{"generation":[],"owner":{}}'])
def test_a_spoilt_binding_keeps_nobody_from_revoking_and_gives_no_credential(driver: Driver, text: str) -> None:
    """B23, B35, E10: handed back uncounted, since its next claim is bound anew; a revocation ends it all the same."""
    put(concurrency=2)
    ids = [driver.enqueue("owned-thread") for _ in range(2)]
    jobs = driver.claim(2)
    for job in jobs:
        spoil("jobs_attempt", "owner_binding", text, "id = %s", job.fence)
    ended = run_sync(registry().exact("owned-thread", 1), jobs[0], run_of(jobs[0]), "worker:test")
    assert isinstance(ended, Interrupted)
    assert ended.reason == owners.UNAVAILABLE
    assert sorted(owners.running(owners.of(tenant_id()))) == sorted(ids)
    owners.revoke(tenant_id(), by="person:1")
    assert {Job.objects.get(pk=id_).state for id_ in ids} == {"paused"}
    assert not Attempt.objects.filter(ended_at=None).exists()
    for id_ in ids:
        check(id_)


@pytest.mark.usefixtures("owned_site")
def test_a_spoilt_binding_keeps_no_owner_from_expiring(driver: Driver) -> None:
    """B35: by the duty, beside other owners."""
    for tenant in ("one", "two"):
        put(tenant=tenant)
        driver.enqueue("owned", tenant=tenant)
    held = driver.claim(2)
    spoil("jobs_attempt", "owner_binding", "{", "id = %s", held[0].fence)
    db.rows("UPDATE jobs_owner SET expires_at = jobs_now() - interval '1 s' RETURNING 1")
    while owners.Owners().tick():
        pass
    assert {Job.objects.get(pk=job.id).state for job in held} == {"paused"}


# --- what a claim cannot take ---------------------------------------------------------------------------------------

# As a hand may set them: never, now, once more; and what has run over.
UNCLAIMABLE = ("deadline_at = 'infinity'", "available_at = '-infinity'", "claims = 2147483647", "number = 2147483647",
               "deadline_ms = 9223372036854775807")


@pytest.mark.parametrize("sets", UNCLAIMABLE)
@pytest.mark.parametrize("slots", [1, 4])
def test_a_job_that_cannot_be_claimed_is_left_alone_and_the_others_are_not(
        driver: Driver, caplog: pytest.LogCaptureFixture, sets: str, slots: int) -> None:
    """Issue 5: said once a minute by its id; mended, it is claimed as any other."""
    bad, *good = (driver.enqueue() for _ in range(3))
    kept = db.rows(f"SELECT {sets.split()[0]} FROM jobs_job WHERE id = %s", bad)[0][0]
    db.rows(f"UPDATE jobs_job SET {sets} WHERE id = %s RETURNING 1", bad)
    mine = claimer()
    taken = [job.id for _ in range(4) for job in assignments.claim_now(mine, slots).jobs]
    assert sorted(taken) == sorted(good)
    assert len([r for r in caplog.records if r.name == "jobs.claim" and bad in r.getMessage()]) == 1
    db.rows(f"UPDATE jobs_job SET {sets.split()[0]} = %s WHERE id = %s RETURNING 1", kept, bad)
    assert assignments.claim_now(mine, slots).jobs == []
    mine.spoilt._until = {bad: clock.monotonic() - 1}
    assert [job.id for job in assignments.claim_now(mine, slots).jobs] == [bad]
    check(bad)


def test_claims_that_were_counted_back_by_hand_stop_no_claim(driver: Driver) -> None:
    """The number of an attempt is taken already: the constraint refuses it each time."""
    bad = driver.enqueue()
    driver.release(driver.claim_one())
    db.rows("UPDATE jobs_job SET claims = 0, chain_claims = 0 WHERE id = %s RETURNING 1", bad)
    good = driver.enqueue()
    assert [job.id for job in assignments.claim_now(claimer(), 1).jobs] == [good]


def test_settlements_beside_such_a_claim_are_settled(driver: Driver) -> None:
    """Settling and claiming share a transaction; the fault is the claim's alone."""
    ended = driver.claim_one() if driver.enqueue() else None
    assert ended is not None
    bad, good = driver.enqueue(), driver.enqueue()
    db.rows("UPDATE jobs_job SET deadline_at = 'infinity' WHERE id = %s RETURNING 1", bad)
    report = settlement.Report(ended.id, ended.fence, done())
    answers, batch = settlement.settle_and_claim([report], "worker:test", claimer(), 2)
    assert [type(answer) for answer in answers] == [Moved]
    assert [job.id for job in batch.jobs] == [good]
    assert driver.state(ended.id) == "completed"


def test_a_fault_that_is_no_rows_is_raised(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was met that could be left alone."""
    def fails(*_: object) -> None:
        raise DataError("of the look itself")

    driver.enqueue()
    monkeypatch.setattr("jobs.store.claim._lines", fails)
    with pytest.raises(Unclaimable):
        assignments.claim_now(claimer(), 2)


def test_a_lease_that_cannot_be_renewed_costs_the_others_none(driver: Driver) -> None:
    """E8: all attempts of a worker beat in one statement; "for ever" cannot be read back."""
    jobs = [driver.claim_one() for _ in range(3) if driver.enqueue()]
    db.rows("UPDATE jobs_attempt SET lease_until = jobs_now() RETURNING 1")
    db.rows("UPDATE jobs_attempt SET lease_until = 'infinity' WHERE id = %s RETURNING 1", jobs[1].fence)
    assert assignments.extend([job.fence for job in jobs]).keys() == {job.fence for job in jobs}
    assert db.rows("SELECT count(*) FROM jobs_attempt WHERE lease_until > jobs_now()") == [(3,)]


@pytest.mark.parametrize("spoilt", ["jobs_attempt.leased_at", "jobs_job.chain_started_at"])
def test_an_attempt_without_a_moment_does_not_hide_the_time_of_others(driver: Driver, spoilt: str) -> None:
    """C34, E8: the look at what is over time goes on."""
    first, second = (driver.claim_one() for _ in range(2) if driver.enqueue())
    table, column = spoilt.split(".")
    key = "id" if table == "jobs_attempt" else "attempt_id"
    assert db.rows(f"UPDATE {table} SET {column} = '-infinity' WHERE {key} = %s RETURNING 1", first.fence)
    db.rows("UPDATE jobs_job SET timeout_ms = 1000 RETURNING 1")
    db.pass_time(5)
    found = due.overtime([(job.id, job.fence) for job in (first, second)])
    assert found == [(second.id, second.fence, "attempt_timeout")]


def test_a_first_heartbeat_that_cannot_be_recorded_costs_the_others_none(driver: Driver) -> None:
    """A9: nor does it keep the worker's own row from being seen to."""
    jobs = [driver.claim_one() for _ in range(3) if driver.enqueue()]
    db.rows("UPDATE jobs_job SET number = 2147483647 WHERE id = %s RETURNING 1", jobs[1].id)
    slots = Slots(3, "worker:test", lambda: None)
    said: list[str] = []
    beats = Heartbeats(slots, uuid.uuid4(), "worker:test", lambda _: None,
                       lambda event, **_: said.append(event))  # type: ignore[arg-type]
    young = [Live(job, run_of(job), threaded=True) for job in jobs]
    try:
        beats._first(young, 0.0)
    finally:
        slots.close()
    assert [driver.state(job.id) for job in jobs] == ["running", "leased", "running"]
    assert said == ["worker.not_started"]
    assert all(live.first_at == math.inf for live in young)
