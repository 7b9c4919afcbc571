"""The audit: what it finds, in which words, and what it does not take for a fault (A12, A13, A63, E12)."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from jobs import clock, receipts
from jobs.models import Job, Receipt
from jobs.outcomes import Released
from jobs.receipts import Kind
from jobs.services import intake, progress, settlement, tenancy, verifying
from jobs.services.verifying import Finding, Selection
from jobs.states import State
from jobs.store import auditing, erase
from jobs.store.claim import claim
from jobs.store.moves import Fact, record
from jobs.store.sql import durable
from tests import database as db
from tests.database import own_connection
from tests.driver import Driver, claimer
from tests.making import in_state, limit, statements

ALL = Selection()
TABLES = ("jobs_receipt", "jobs_artifact", "jobs_job", "jobs_attempt", "jobs_dead_letter")


def look(chosen: Selection = ALL, **options: Any) -> list[Finding]:
    """All that an audit finds."""
    return [finding for batch in verifying.audit(chosen, **options) for finding in batch.findings]


def by_hand(*changes: str) -> None:
    """Past every trigger and foreign key, as somebody with the database's password."""
    tables = [table for table in TABLES if any(f" {table} " in f"{change} " for change in changes)]
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        try:
            for change in changes:
                cursor.execute(change)
        finally:
            for table in tables:
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def forge(job_id: str, number: int, **changed: str) -> None:
    """Write a receipt by hand and every hash from it on anew: the chain holds, whatever it says."""
    prev, sets = receipts.ZERO, []
    for r in Receipt.objects.filter(job_id=job_id).order_by("number"):
        if r.number == number:
            r.kind, r.body = changed.get("kind", r.kind), changed.get("body", r.body)
        prev = receipts.link(prev, r.job_id, r.number, clock.micros(r.at) or 0, r.kind, r.body)
        body = r.body.replace("'", "''").replace("%", "%%")
        sets.append(f"UPDATE jobs_receipt SET kind = '{r.kind}', body = '{body}', hash = '\\x{prev.hex()}'"
                    f" WHERE job_id = '{job_id}' AND number = {r.number}")
    by_hand(*sets, f"UPDATE jobs_job SET head = '\\x{prev.hex()}' WHERE id = '{job_id}'")


def released(driver: Driver) -> str:
    """A job with four receipts: enqueued, leased, heartbeat, released."""
    job_id = driver.enqueue("echo")
    job = driver.claim_one()
    driver.start(job)
    driver.release(job)
    return job_id


def test_nothing_is_wrong_with_jobs_in_every_state(driver: Driver) -> None:
    """E12, E14.19: every state, a second chain, a checkpoint and a cap, strictly too."""
    limit(tenant_concurrency=50)
    for n, state in enumerate(State):
        in_state(driver, state, target=f"thing {n}")
        # Nothing is left that the next claim would take instead of its own job.
        for waiting in Job.objects.filter(state="queued"):
            driver.pause(str(waiting.pk))
    driver.requeue(str(Job.objects.get(state="failed").pk))
    kept = driver.claim_one()
    progress.checkpoint(kept.id, kept.fence, 4, {"page": 3}, "worker:test")
    driver.enqueue("echo", delay_s=500)
    driver.enqueue("echo")
    assert {j.state for j in Job.objects.all()} >= {s.value for s in State} - {"failed"}
    batches = list(verifying.audit(ALL, strict=True))
    assert [f for b in batches for f in b.findings] == []
    assert sum(b.jobs for b in batches) == Job.objects.count() > 8
    assert sum(b.receipts for b in batches) == Receipt.objects.count()


ONE_MORE = ("INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash) SELECT job_id, number + 1, kind, at, body,"
            " hash FROM jobs_receipt WHERE number = 4")
TAMPERED = [
    ("UPDATE jobs_receipt SET body = replace(body, '\"to\"', '\"ot\"') WHERE number = 3", "hash mismatch", 3),
    ("UPDATE jobs_receipt SET body = 'no json' WHERE number = 3", "hash mismatch", 3),
    ("UPDATE jobs_receipt SET kind = 'job.unheard' WHERE number = 2", "hash mismatch", 2),
    ("UPDATE jobs_receipt SET at = at + interval '1 microsecond' WHERE number = 1", "hash mismatch", 1),
    ("UPDATE jobs_receipt SET at = 'infinity' WHERE number = 1", "hash mismatch", 1),
    ("UPDATE jobs_receipt SET hash = '\\x00' WHERE number = 4", "hash mismatch", 4),
    ("DELETE FROM jobs_receipt WHERE number = 2", "broken prev", 2),
    ("DELETE FROM jobs_receipt WHERE number = 1", "broken prev", 1),
    ("DELETE FROM jobs_receipt WHERE true", "broken prev", None),
    ("DELETE FROM jobs_receipt WHERE number = 4", "fold differs", 3),
    ("UPDATE jobs_receipt SET number = 9 WHERE number = 4", "broken prev", 4),
    (ONE_MORE, "hash mismatch", 5),
]


@pytest.mark.parametrize(("change", "why", "number"), TAMPERED)
def test_the_first_bad_receipt_is_named_and_why(driver: Driver, change: str, why: str, number: int | None) -> None:
    """A12: `broken prev`, `hash mismatch`, `fold differs`, at the first that does not fit; other jobs are well."""
    bad = released(driver)
    driver.cancel(driver.enqueue("echo"))
    by_hand(f"{change} AND job_id = '{bad}'")
    found = look()
    assert [(f.job, f.why, f.number) for f in found] == [(bad, why, number)], found
    assert number is None or f"receipt {number}" in found[0].said or why == "fold differs"


FIELDS = {
    "state": "state = 'paused'", "reason": "reason = 'because'", "revision": "revision = 1", "claims": "claims = 7",
    "chain": "chain = 2", "chain_claims": "chain_claims = 0", "failures": "failures = 1", "lapses": "lapses = 1",
    "releases": "releases = 0", "interruptions": "interruptions = 2", "pauses": "pauses = 2",
    "available_at": "available_at = available_at + interval '1 microsecond'", "started_at": "started_at = NULL",
    "ended_at": "state = 'cancelled', ended_at = jobs_now()", "cancelled_at": "cancelled_at = 'infinity'",
    "progress": "progress = '{\"stage\": \"x\"}'", "checkpoint_number": "checkpoint_number = 3",
    "checkpoint_hash": "checkpoint_hash = '\\x0102'", "input_hash": "input_hash = '\\x00'", "number": "number = 5",
    "head": "head = '\\x0304'", "attempt": f"state = 'leased', attempt_id = '{uuid.uuid4()}'",
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_row_that_says_something_else_is_named_with_the_field_and_both_values(driver: Driver, field: str) -> None:
    """E12: each compared field; A12: `fold differs`. What `explain` says is the same."""
    bad = released(driver)
    by_hand(f"UPDATE jobs_job SET {FIELDS[field]} WHERE id = '{bad}'")
    [found] = look()
    assert (found.job, found.why, found.number) == (bad, "fold differs", 4)
    assert f"{field}: the receipts say " in found.said
    if field == "claims":
        assert found.said == "fold differs in claims: the receipts say 1, the row says 7"
    if "infinity" not in FIELDS[field]:
        job = Job.objects.get(pk=bad)
        assert str(verifying.fault(job, list(Receipt.objects.filter(job_id=bad).order_by("number")))) == found.said


def test_what_a_job_made_is_compared_too(driver: Driver) -> None:
    """E12: the artifact's hash, one that is gone, and one of a job that made none; generations of targets."""
    done, other = driver.enqueue("echo", target="thing"), driver.enqueue("echo")
    driver.complete(next(j for j in driver.claim(2) if j.id == done), "good")
    assert look(strict=True) == []
    by_hand(f"UPDATE jobs_artifact SET hash = '\\x00' WHERE job_id = '{done}'")
    assert "artifact_hash: the receipts say" in look()[0].said
    by_hand(f"UPDATE jobs_artifact SET job_id = '{other}'")
    assert [(f.job, f.why) for f in look()] == [(done, "fold differs"), (other, "fold differs")]
    by_hand(f"UPDATE jobs_job SET generation = 8 WHERE id = '{done}'")
    assert "generation: the receipts say 1, the row says 8" in look()[0].said


NONSENSE = [
    {"kind": "job.unheard"}, {"body": "no json"}, {"body": "[]"}, {"body": "null"},
    {"body": "{}", "kind": "job.leased"},
    {"body": '{"to":"nowhere"}'}, {"body": '{"to":["queued"],"attempt":null}'}, {"body": "[" * 100_000},
    {"body": '{"attempt":{"a":1},"to":"running"}'}, {"body": '{"to":"queued","after":"soon"}'},
    {"body": '{"to":"queued","available_at":' + "9" * 5_000 + "}"},
    {"body": '{"checkpoint":1}', "kind": "job.checkpoint"},
    {"body": "{}", "kind": "job.progress"}, {"body": '{"to":"completed"}', "kind": "job.completed"}, {"body": ""},
]


@pytest.mark.parametrize("changed", NONSENSE,
                         ids=lambda c: " ".join(c.values())[:40])
def test_what_nobody_of_us_writes_is_reported_and_the_audit_goes_on(driver: Driver, changed: dict[str, str]) -> None:
    """Poisoned receipts behind hashes that hold: one finding, no traceback, and the jobs after it are looked at."""
    bad, last = released(driver), driver.enqueue("echo")
    by_hand(f"UPDATE jobs_job SET claims = 5 WHERE id = '{last}'")
    forge(bad, 3, **changed)
    found = look(strict=True)
    assert [f.job for f in found] == [bad, last], found
    assert found[0].why in ("unreadable", "fold differs")
    assert len(found[0].said) < 3_000
    job = Job.objects.get(pk=bad)
    assert verifying.fault(job, list(Receipt.objects.filter(job_id=bad).order_by("number"))) is not None


def test_numbers_that_cannot_be_are_reported(driver: Driver) -> None:
    """Negative numbers and infinite moments, put in by hand past constraints and triggers."""
    bad = released(driver)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job DROP CONSTRAINT job_counters_not_negative")
        cursor.execute("ALTER TABLE jobs_receipt DROP CONSTRAINT receipt_number_positive")
        try:
            by_hand(f"UPDATE jobs_job SET failures = -1, available_at = '-infinity' WHERE id = '{bad}'")
            assert {"failures", "available_at"} <= {w.split(":")[0].split()[-1] for w in look()[0].said.split("; ")}
            by_hand(f"UPDATE jobs_receipt SET number = -4 WHERE job_id = '{bad}' AND number = 2")
            assert [(f.why, f.number) for f in look(strict=True)] == [("broken prev", 1)]
        finally:
            by_hand(f"DELETE FROM jobs_receipt WHERE job_id = '{bad}'",
                    f"UPDATE jobs_job SET failures = 0 WHERE id = '{bad}'")
            cursor.execute("ALTER TABLE jobs_job ADD CONSTRAINT job_counters_not_negative CHECK (chain_claims <= claims"
                           " AND failures >= 0 AND lapses >= 0 AND releases >= 0 AND interruptions >= 0 AND pauses >= 0"
                           " AND chain_claims >= 0)")
            cursor.execute("ALTER TABLE jobs_receipt ADD CONSTRAINT receipt_number_positive CHECK (number >= 1)")


# Which law is broken by what; `held` has a live attempt, `failed` an open letter, `free` waits for a claim.
LAWS = {
    "live_attempt": ("held", "DELETE FROM jobs_attempt WHERE job_id = '{id}'"),
    "stray_attempt": ("free", "UPDATE jobs_attempt SET job_id = '{id}' WHERE job_id = '{held}'"),
    "input_hash": ("free", "UPDATE jobs_job SET input = '{{}} ' WHERE id = '{id}'"),
    "checkpoint_hash": ("free", "UPDATE jobs_job SET checkpoint = '[]' WHERE id = '{id}'"),
    "artifact_hash": ("done", "UPDATE jobs_artifact SET value = '7' WHERE job_id = '{id}'"),
    "letter_of_another": ("failed", "UPDATE jobs_dead_letter SET chain = 9 WHERE job_id = '{id}'"),
    "letter_missing": ("failed", "DELETE FROM jobs_dead_letter WHERE job_id = '{id}'"),
    "line_missing": ("free", "DELETE FROM jobs_claim_line"),
    "gate": ("free", "UPDATE jobs_job SET gate = 'spent' WHERE id = '{id}'"),
    "workspace": ("free", "UPDATE jobs_job SET workspace_id = workspace_id + 9 WHERE id = '{id}'"),
    "target": ("done", "UPDATE jobs_target SET generation = 0"),
}


@pytest.mark.parametrize("law", LAWS)
def test_strictly_what_no_constraint_sees_is_found(driver: Driver, law: str) -> None:
    """A63: references, payloads, dead letters, gates and lines; each law can be broken, and is seen only then."""
    ids = {name: in_state(driver, state, target=name).id for name, state in
           (("held", State.LEASED), ("failed", State.FAILED), ("done", State.COMPLETED), ("free", State.QUEUED))}
    assert look(strict=True) == []
    whose, change = LAWS[law]
    by_hand(change.format(id=ids[whose], **ids))
    found = {(f.job, f.why) for f in look(strict=True)}
    assert (ids[whose], law) in found, found
    assert {why for _, why in found} <= {law, "live_attempt", "letter_missing"}
    assert look() == []


def test_every_law_has_a_test() -> None:
    """A law that nothing breaks here could be one that never holds."""
    assert set(LAWS) == set(auditing.LAWS)


def test_rows_without_a_job_or_an_attempt_are_found(driver: Driver) -> None:
    """DESIGN 4: receipts, caps and logs name their job or attempt without a constraint."""
    limit(tenant_concurrency=5)
    gone, held = driver.enqueue("echo"), driver.enqueue("echo")
    fence = next(j.fence for j in driver.claim(2) if j.id == held)
    log = str(uuid.uuid4())
    by_hand(f"INSERT INTO jobs_attempt_log (attempt_id, lines, dropped) VALUES ('{log}', 'x', 0)",
            f"UPDATE jobs_attempt SET ended_at = jobs_now(), outcome = 'lapsed' WHERE id = '{fence}'",
            f"DELETE FROM jobs_attempt WHERE job_id = '{gone}'", f"DELETE FROM jobs_job WHERE id = '{gone}'")
    found = {(f.why, f.job or f.attempt) for f in look(strict=True)}
    assert {("job_gone", gone), ("log_without_attempt", log), ("live_attempt", held),
            ("cap_without_attempt", fence)} <= found
    assert look() == []


def test_attempts_that_were_deleted_with_their_letter_are_no_fault(driver: Driver) -> None:
    """C26: thirty days after its answer a dead letter goes with its chain's attempts, and the receipts still hold."""
    made = in_state(driver, State.FAILED, target=None)
    driver.requeue(made.id)
    driver.fail(driver.claim_one(), retryable=False)
    driver.discard(made.id)
    durable(lambda: erase.letters([(pk, made.id) for pk, in db.rows("SELECT id FROM jobs_dead_letter")]))
    assert db.rows("SELECT count(*) FROM jobs_attempt") == [(0,)]
    assert look(strict=True) == []


def test_payloads_that_were_redacted_are_no_fault(driver: Driver) -> None:
    """E13: redaction empties payloads and says so by a receipt; hashes stay, and so the chain holds."""
    made = in_state(driver, State.COMPLETED, target=None)
    by_hand(f"UPDATE jobs_job SET input = '' WHERE id = '{made.id}'",
            f"UPDATE jobs_artifact SET value = '' WHERE job_id = '{made.id}'")
    assert {f.why for f in look(strict=True)} == {"input_hash", "artifact_hash"}
    durable(lambda: record([Fact(made.id, Kind.REDACTED, {"by": "user:test"})]))
    assert look(strict=True) == []


def test_a_job_that_moves_meanwhile_is_no_false_alarm(driver: Driver) -> None:
    """One snapshot a batch: while jobs are claimed, released and made, an audit finds nothing, however often."""
    for _ in range(6):
        driver.enqueue("echo")
    ended = threading.Event()
    moved: list[int] = []

    def busy() -> None:
        with own_connection():
            by = claimer()
            while not ended.is_set():
                taken = durable(lambda: claim(by, 4)).jobs
                settlement.settle([settlement.Report(j.id, j.fence, Released(0)) for j in taken], by.by)
                if len(moved) < 40:
                    intake.enqueue("echo", {})
                moved.append(len(taken))

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        looked = 0
        while looked < 12 or len(moved) < 12:
            assert look(strict=True, batch=3) == []
            looked += 1
    finally:
        ended.set()
        thread.join(20)
    assert sum(moved) > 12


def test_a_batch_costs_the_same_number_of_statements_however_much_is_in_it(driver: Driver) -> None:
    """One batch of 3 jobs and one of 30 ask alike; the last, empty one looks for what has no attempt too."""
    counts = []
    for more in (3, 27):
        for _ in range(more):
            driver.enqueue("echo")
        with statements() as asked:
            assert look(strict=True) == []
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 12, counts


def test_a_history_of_any_length_is_read_a_chunk_at_a_time(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: receipts come by a cursor of the server, and a fault beyond the first chunk is seen."""
    monkeypatch.setattr(auditing, "CHUNK", 3)
    first = released(driver)
    driver.pause(first)
    second = released(driver)
    assert look() == []
    by_hand(f"UPDATE jobs_receipt SET body = '{{}}' WHERE job_id = '{second}' AND number = 4")
    assert [(f.job, f.number) for f in look(batch=1)] == [(second, 4)]
    by_hand(f"UPDATE jobs_receipt SET body = '{{}}' WHERE job_id = '{first}' AND number = 1")
    assert [(f.job, f.number) for f in look()] == [(first, 1), (second, 4)]


def test_what_was_chosen_is_looked_at_and_nothing_else(driver: Driver) -> None:
    """By tenant, workspace, moment, id and number of jobs."""
    old, acme = driver.enqueue("echo"), driver.enqueue("echo", tenant="acme")
    db.pass_time(3_600)
    new = driver.enqueue("echo")
    by_hand("UPDATE jobs_job SET claims = 4")
    place = tenancy.workspace()
    tenant = tenancy.tenant(place, "acme").pk

    def found(chosen: Selection, **options: Any) -> list[str | None]:
        seen = [finding.job for finding in look(chosen, **options)]
        assert verifying.count(chosen, options.get("most")) == len(seen)
        return seen

    assert found(ALL) == found(Selection(workspace_id=place.pk)) == [old, acme, new]
    assert found(ALL, most=2) == found(ALL, most=2, batch=1) == [old, acme]
    assert found(Selection(tenant_id=tenant)) == found(Selection(job_id=acme)) == [acme]
    assert found(Selection(since=clock.now() - timedelta(minutes=5))) == [new]
    assert found(Selection(workspace_id=place.pk + 1)) == []
    assert [f.job for f in verifying.faults([old, new])] == [old, new]
    assert json.dumps([f.said for f in verifying.faults([str(uuid.UUID(int=7))])]) == '["it is not there"]'
