"""Rows of A and B that are about the whole, each as section E settles it; what belongs to one part is tested there."""

from __future__ import annotations

import ast
import io
import json
import threading
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from jobs import RetryPolicy, publish
from jobs.errors import Invalid, JobsError
from jobs.models import Artifact, Attempt, DeadLetter, Job, Receipt, Target, Tenant
from jobs.receipts import Kind
from jobs.services import assignments, intake
from jobs.states import STATUS, State
from jobs.store.claim import claim
from jobs.store.moves import Fact, record
from jobs.store.sql import durable
from jobs.worker import loops
from jobs.worker.outage import Outage
from jobs.worker.output import Output
from tests import database as db
from tests.architecture.source import walk
from tests.database import own_connection
from tests.driver import Driver, claimer, refused
from tests.edges.caller import Caller, everything


def kinds(job_id: str) -> list[str]:
    """The kinds of a job's receipts in order."""
    return list(Receipt.objects.filter(job_id=job_id).order_by("number").values_list("kind", flat=True))


# --- what a job is ------------------------------------------------------------------------------------------------


def test_whatever_asks_for_work_makes_the_same_job(driver: Driver) -> None:
    """A1, A2, B4: by Python, the API or a command it is one row and one receipt, by way of the one service."""
    out = io.StringIO()
    call_command("enqueue", "noop", stdout=out)
    made = [driver.enqueue("noop"), Caller().enqueue("noop")["id"], out.getvalue().split()[0]]
    assert len(set(made)) == 3
    rows = Job.objects.filter(pk__in=made).values_list("type", "version", "state", "queue", "claims", "number")
    assert set(rows) == {("noop", 1, "queued", "collect", 0, 1)}
    assert [kinds(job_id) for job_id in made] == [[Kind.ENQUEUED]] * 3
    assert not Attempt.objects.exists()


def test_the_whole_path_is_written_down_and_needs_no_process_in_between(driver: Driver) -> None:
    """A2, A31: posted and answered 202, claimed, running, completed; each step stands in the rows alone."""
    api = Caller()
    answer = api.post("/jobs", {"type": "outside", "input": {}})
    assert answer.status_code == 202
    job_id = answer.json()["id"]
    held = api.claim_one()
    assert held["job"]["id"] == job_id
    assert api.assignment(held, "extend").status_code == 200
    assert api.assignment(held, "complete", {"artifact": {}}).status_code == 200
    assert kinds(job_id) == [Kind.ENQUEUED, Kind.LEASED, Kind.HEARTBEAT, Kind.COMPLETED]
    read = api.get(f"/jobs/{job_id}").json()
    assert (read["status"], read["state"]) == ("completed", "completed")


def test_stored_states_and_the_six_words_of_a_caller(database: None) -> None:
    """A5, B18, E1: eight states are stored, B's seven among them (pending is queued or leased), six words are read."""
    assert {s.value for s in State} == {"queued", "leased", "running", "paused", "completed", "failed", "cancelled",
                                       "superseded"}
    assert set(STATUS.values()) == {"queued", "leased", "running", "completed", "failed", "cancelled"}
    intake.enqueue("noop", {})
    with pytest.raises(IntegrityError, match="job_state_known"):
        Job.objects.update(state="pending")


def test_an_attempt_is_a_claim_and_a_failure_is_what_used_budget(driver: Driver) -> None:
    """B2, B3, E2: three claims, one failure: only failures meet `max_attempts`; the fence, claims and the artifact."""
    job_id = driver.enqueue("echo", retry=RetryPolicy(max_attempts=2, base_delay_s=1, max_delay_s=1), target="thing")
    driver.release(driver.claim_one())
    driver.interrupt(driver.claim_one())
    driver.fail(driver.claim_one())
    job = driver.job(job_id)
    assert (job.state, job.claims, job.failures, job.attempt_count) == ("queued", 3, 1, 1)
    assert [a.number for a in Attempt.objects.filter(job_id=job_id).order_by("number")] == [1, 2, 3]
    driver.pass_time(5)
    driver.complete(driver.claim_one(), "kept")
    assert json.loads(Artifact.objects.get(job_id=job_id).value) == "kept"
    assert Target.objects.get(pk=job.target_id).generation == job.generation == 1
    # A's "channel revision" is the tenant's, and counts other things than the job's own.
    assert Tenant.objects.get(pk=job.tenant_id).revision != driver.job(job_id).revision


def test_failures_end_a_job_and_attempts_do_not(driver: Driver) -> None:
    """B3, B24: with a budget of two, eight uncounted ends change nothing and the second failure ends it."""
    job_id = driver.enqueue("echo", retry=RetryPolicy(max_attempts=2, base_delay_s=1, max_delay_s=1))
    for _ in range(4):
        driver.release(driver.claim_one())
        driver.interrupt(driver.claim_one())
    driver.fail(driver.claim_one())
    assert driver.state(job_id) == "queued"
    driver.pass_time(5)
    driver.fail(driver.claim_one())
    assert (driver.state(job_id), DeadLetter.objects.get(job_id=job_id).reason) == ("failed", "attempts_exhausted")


def test_a_new_type_needs_no_migration(driver: Driver) -> None:
    """B39, B1: rows name `type@version` and nothing of code; the schema knows no type, no version and no queue."""
    names = {name for name, in db.rows("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid ="
                                       " 'jobs_job'::regclass")}
    for word in ("echo", "document-summary", "'collect'", "'default'"):
        assert not any(word in name for name in names), word
    job_id = driver.enqueue("echo")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET type = 'of-tomorrow', version = 7 WHERE id = %s", [job_id])
    assert driver.job(job_id).type == "of-tomorrow"


def test_credits_are_told_and_not_enforced(driver: Driver) -> None:
    """B10, E15: the budget is metadata of the definition; nothing that claims, runs or settles looks at it."""
    readers = {path for path, node in walk() if isinstance(node, ast.Attribute) and node.attr == "max_ai_credits"}
    assert not {path for path in readers if path.startswith(("jobs/store/", "jobs/worker/", "jobs/services/settle"))}


# --- delivery -----------------------------------------------------------------------------------------------------


def test_the_receipt_is_the_outbox_and_a_wake_only_a_hint(driver: Driver) -> None:
    """A32, A33, E2: nobody hears a wake here, and the job is claimed all the same, once, by whoever asks."""
    job_id = driver.enqueue("echo")
    assert [job.id for job in driver.claim(5)] == [job_id]
    assert driver.claim(5) == []
    assert kinds(job_id) == [Kind.ENQUEUED, Kind.LEASED]


def test_start_and_interval_share_one_path(database: None) -> None:
    """A32, A47, A50, E2: a second after the start, redrive after five and then every 15 s; it only wakes who claims."""
    made = {loop.duty: loop for loop in loops.loops()}
    for duty, loop in made.items():
        first = 5.0 if duty == "redrive" else 1.0
        assert first - 0.5 < loop.wait_s() <= first, duty
    made["redrive"].run(Output(io.StringIO()))
    assert 13 < made["redrive"].wait_s() < 17


def test_a_job_whose_holder_is_gone_is_handed_out_again_by_a_receipt(driver: Driver) -> None:
    """A3, A34, A52, E2: delivery is no ownership. A lapse is written as `job.lease_expired`; claims deliver again."""
    job_id = driver.enqueue("echo")
    lost = driver.claim_one()
    assert driver.claim(1) == []
    driver.pass_time(60)
    assert driver.recover() == 1
    assert kinds(job_id) == [Kind.ENQUEUED, Kind.LEASED, Kind.LEASE_EXPIRED]
    again = driver.claim_one()
    assert (again.id, again.claims) == (job_id, lost.claims + 1)
    assert again.fence != lost.fence


def test_a_holder_starts_and_ends_under_its_fence_and_hears_of_an_abort(driver: Driver) -> None:
    """A34, A35, E5, E8: a start of lost work is refused, a beat tells an abort, a settle names its fence."""
    job_id = driver.enqueue("echo")
    lost = driver.claim_one()
    driver.pass_time(60)
    driver.recover()
    held = driver.claim_one()
    refused(driver.start(lost), "stale_claim")
    assert driver.extend(lost) == {}
    assert not isinstance(driver.start(held), JobsError)
    durable(lambda: record([Fact(job_id, Kind.COMMAND, {"by": "x"}, abort_reason="enough")]))
    assert driver.extend(held)[held.fence].abort == "enough"
    refused(driver.complete(lost), "stale_claim")
    assert driver.state(job_id) == "running"
    driver.stop(held)
    assert driver.state(job_id) == "cancelled"


def test_groups_decide_who_runs_what_and_who_serves_the_web_runs_nothing(driver: Driver) -> None:
    """A28, A29, E7: roles are groups of a worker; a group that nobody serves waits, and nothing else is held up."""
    outside, mine = driver.enqueue("outside"), driver.enqueue("echo")
    assert [job.id for job in driver.claim(5)] == [mine]
    group = driver.job(outside).worker_group
    assert [job.id for job in driver.claim(5, by=claimer(group))] == [outside]
    assert driver.claim(5, by=claimer("nobody-is-here")) == []


def test_no_call_waits_for_a_handler(driver: Driver) -> None:
    """A46, E2, E8: there is no driver whose call could time out; a claim ends with its lease, however long the work."""
    driver.enqueue("sleepy", {"seconds": 10_000.0})
    job = driver.claim_one()
    assert job.lease_ms < 60_000 < (job.timeout_ms or 10**9)
    driver.pass_time(2)
    assert assignments.extend([job.fence])[job.fence].abort is None
    attempt = Attempt.objects.get(pk=job.fence)
    assert (attempt.lease_until - attempt.leased_at).total_seconds() >= job.lease_ms / 1000


def test_a_worker_asks_again_without_end_and_never_hectically() -> None:
    """A36, A38, B22, E8: 150 ms longer after each failure, two seconds at most: a server that is back is soon found."""
    trouble = Outage()
    pauses = [trouble.again() for _ in range(40)]
    assert pauses[:3] == pytest.approx([0.15, 0.30, 0.45])
    assert pauses == sorted(pauses)
    assert pauses[-20:] == [2.0] * 20
    trouble.over()
    assert trouble.again() == pytest.approx(0.15)


# --- who may ------------------------------------------------------------------------------------------------------


def test_readers_read_and_only_those_who_may_control_cancel(driver: Driver) -> None:
    """B41, E10: list and get by `read`, cancel by `control`; a refusal changes nothing."""
    job_id = driver.enqueue("outside")
    reader, controller = Caller("r", permissions=["read"]), Caller("c", permissions=["control"])
    assert reader.get("/jobs").json()["jobs"][0]["id"] == job_id
    assert reader.get(f"/jobs/{job_id}").status_code == 200
    assert reader.post(f"/jobs/{job_id}/controls", {"action": "cancel"}).status_code == 403
    assert controller.get(f"/jobs/{job_id}").status_code == 403
    assert driver.state(job_id) == "queued"
    assert controller.post(f"/jobs/{job_id}/controls", {"action": "cancel"}).status_code == 200
    assert driver.state(job_id) == "cancelled"


def test_there_is_one_store_and_tests_seed_it_with_no_runner(driver: Driver) -> None:
    """B46, E: no second adapter to agree with; what tests say of the store they say to PostgreSQL, by its own verbs."""
    assert connection.vendor == "postgresql"
    driver.fail(driver.claim_one() if driver.enqueue("echo") else None, retryable=False)  # type: ignore[arg-type]
    assert db.rows("SELECT count(*) FROM jobs_worker") == [(0,)]
    assert Job.objects.get().state == "failed"


# --- at the boundary of transactions --------------------------------------------------------------------------------


def test_a_job_exists_if_and_only_if_its_transaction_does(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """case-D01, A2: nobody claims it before the commit, and nothing is left of a rollback; wakes follow the commit."""
    woken: list[int] = []
    monkeypatch.setattr(publish._waker, "ask", lambda: woken.append(1))
    by = claimer()

    def others() -> list[str]:
        found: list[str] = []

        def look() -> None:
            with own_connection():
                found.extend(job.id for job in durable(lambda: claim(by, 5)).jobs)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        return found

    with transaction.atomic():
        kept = intake.enqueue("echo", {}).id
        with transaction.atomic():
            lost = intake.enqueue("echo", {"value": "of a savepoint"}).id
            transaction.set_rollback(True)
        assert (others(), woken) == ([], [])
    assert len(woken) == 1
    with transaction.atomic():
        gone = intake.enqueue("echo", {"value": "of a transaction"}).id
        assert others() == [kept]
        transaction.set_rollback(True)
    # The claim, and nothing that was rolled back, has woken anybody since.
    assert others() == []
    assert {str(pk) for pk in Job.objects.values_list("pk", flat=True)} == {kept}
    assert not Receipt.objects.filter(job_id__in=[lost, gone]).exists()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("same", [True, False], ids=["same body", "another body"])
def test_the_loser_of_a_race_for_a_key_is_answered_and_never_5xx(driver: Driver, same: bool, ends: str) -> None:
    """case-D04, A18, B15: while the winner's transaction is open the other waits; then it is told, or may make it."""
    api, opened, go = Caller(), threading.Event(), threading.Event()
    answers: list[Any] = []

    def winner() -> None:
        with own_connection(), transaction.atomic():
            answers.append(api.send("POST", "/jobs", {"type": "outside", "input": {}}, Idempotency_Key="k"))
            opened.set()
            go.wait(20)
            transaction.set_rollback(ends == "rollback")

    first = threading.Thread(target=winner)
    first.start()
    assert opened.wait(20)
    threading.Timer(0.3, go.set).start()
    body = {"type": "outside", "input": {} if same else {"another": 1}}
    late = Caller("two").send("POST", "/jobs", body, Idempotency_Key="k")
    first.join(20)
    assert answers[0].status_code == 202, answers[0].content
    if ends == "rollback":
        assert late.status_code == 202
    elif same:
        assert (late.status_code, late.json()["id"], late.json()["repeated"]) == (200, answers[0].json()["id"], True)
    else:
        assert (late.status_code, late.json()["code"]) == (422, "idempotency_key_reused")
    assert Job.objects.count() == 1


class Colour(Enum):
    """Neither text nor number."""

    RED = "red"


class Ordered(dict[str, Any]):
    """A dict with a mind of its own."""


@pytest.mark.parametrize("value", [
    Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), uuid.UUID(int=1), b"bytes", {1, 2}, (1, 2),
    Colour.RED, {1: "a"}, {1.5: "a"}, {None: "a"}, Ordered(a=1), float("nan"), float("inf"), object(), 1j,
], ids=lambda v: type(v).__name__)
def test_what_json_cannot_say_is_refused_and_never_changed(driver: Driver, value: Any) -> None:
    """case-D12, B8, B9: a typed refusal before any write, with the place; no value is ever stored as another."""
    before = everything()
    for whole in (value, {"a": [value]}):
        with pytest.raises(Invalid) as caught:
            intake.enqueue("outside", whole)
        assert caught.value.code.isidentifier()
    assert everything() == before
    kept = {"a": [1, 1.5, "x", None, True, {"b": []}]}
    assert json.loads(Job.objects.get(pk=intake.enqueue("outside", kept).id).input) == kept
