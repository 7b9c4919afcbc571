"""Every verb in every state, through the one writer, on real rows: what it makes of them, or why not."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jobs.errors import JobsError
from jobs.models import DeadLetter, Job, Receipt
from jobs.outcomes import END_OF
from jobs.receipts import KIND_OF, Kind
from jobs.states import ACTIVE, FENCED, HELD, MOVES, TERMINAL, State, Verb
from jobs.store import moves
from jobs.store.moves import Fact, Moved, record
from jobs.store.sql import durable
from tests import database as db
from tests.driver import Driver, check, refused
from tests.making import Made, attempt, in_state, move_of

# Where each legal pair leads with the plainest facts (budget left, no abort pending, no deadline).
PLAIN = {
    Verb.START: "running", Verb.COMPLETE: "completed", Verb.FAIL: "queued", Verb.STOP: "cancelled",
    Verb.RELEASE: "queued", Verb.INTERRUPT: "queued", Verb.LAPSE: "queued", Verb.SPOIL: "failed", Verb.EXPIRE: "failed",
    Verb.EXHAUST: "failed", Verb.PAUSE: "paused", Verb.RESUME: "queued", Verb.CANCEL: "cancelled",
    Verb.SUPERSEDE: "superseded", Verb.REQUEUE: "queued",
}
COUNTED = {Verb.FAIL: {"failures": 1}, Verb.RELEASE: {"releases": 1}, Verb.INTERRUPT: {"interruptions": 1},
           Verb.LAPSE: {"lapses": 1, "failures": 1}, Verb.PAUSE: {"pauses": 1}, Verb.SPOIL: {"failures": 1}}
LETTERS = {Verb.SPOIL: "terminal_error", Verb.EXPIRE: "deadline_exceeded", Verb.EXHAUST: "attempts_exhausted"}
COUNTERS = ("failures", "lapses", "releases", "interruptions", "pauses", "claims", "chain_claims")
LEGAL = sorted(pair for pair in MOVES if pair[1] is not Verb.CLAIM)
ILLEGAL = sorted({(s, v) for s in State for v in Verb} - set(LEGAL))


def code_of(state: State, verb: Verb) -> str:
    """The stable code of each refusal, in words of this test alone."""
    if verb in FENCED and state not in HELD:
        return "stale_claim"
    if verb is Verb.REQUEUE:
        return "not_dead_lettered"
    if state in TERMINAL:
        return "job_ended"
    if verb is Verb.CLAIM:
        return "illegal_move" if state is State.QUEUED else "not_queued"
    return {Verb.START: "already_running", Verb.SPOIL: "not_claimed", Verb.EXPIRE: "not_queued",
            Verb.EXHAUST: "not_queued", Verb.PAUSE: "already_paused", Verb.RESUME: "not_paused"}[verb]


@pytest.mark.parametrize(("state", "verb"), LEGAL, ids=str)
def test_a_legal_move_leads_where_the_table_says(driver: Driver, state: State, verb: Verb) -> None:
    """E1, E12, E14.19: the state, one receipt of the verb's kind, the counters, the attempt's end, the letter."""
    made = in_state(driver, state)
    before = Job.objects.get(pk=made.id)
    answer = durable(lambda: moves.apply([move_of(verb, made)]))[0]
    after = Job.objects.get(pk=made.id)
    check(made.id)
    assert isinstance(answer, Moved)
    assert after.state == answer.state == PLAIN[verb]
    assert (
        (answer.revision, answer.number) == (after.revision, after.number) == (before.revision + 1, before.number + 1)
    )
    assert Receipt.objects.filter(job_id=made.id).order_by("-number")[0].kind == KIND_OF[verb]
    _check_counters(verb, state, before, after)
    _check_attempt(verb, made.fence)
    _check_letter(verb, made.id)


def _check_counters(verb: Verb, state: State, before: Job, after: Job) -> None:
    raised = COUNTED.get(verb, {}) if state in HELD else {}
    for name in COUNTERS:
        old = 0 if verb is Verb.REQUEUE and name != "claims" else getattr(before, name)
        assert getattr(after, name) == old + raised.get(name, 0), name
    assert after.chain == before.chain + (verb is Verb.REQUEUE)


def _check_attempt(verb: Verb, fence: str | None) -> None:
    if fence is None:
        return
    row = attempt(fence)
    if verb is Verb.START:
        assert (row.ended_at, row.outcome) == (None, None)
        assert row.started_at is not None
    else:
        assert row.ended_at is not None
        assert row.outcome == END_OF[verb]


def _check_letter(verb: Verb, job_id: str) -> None:
    opened = DeadLetter.objects.filter(job_id=job_id, resolved_at=None)
    assert [letter.reason for letter in opened] == ([LETTERS[verb]] if verb in LETTERS else [])


@pytest.mark.parametrize(("state", "verb"), ILLEGAL, ids=str)
def test_an_illegal_move_is_refused_by_code_and_changes_nothing(driver: Driver, state: State, verb: Verb) -> None:
    """E1, E14.2, E14.3, E14.12: nothing else moves, and a refusal leaves every row as it was."""
    made = in_state(driver, state)
    before = db.row_hash(made.id)
    answer = durable(lambda: moves.apply([move_of(verb, made)]))[0]
    refused(answer, code_of(state, verb))
    assert db.row_hash(made.id) == before


@pytest.mark.parametrize("verb", sorted(FENCED))
@pytest.mark.parametrize("state", sorted(HELD))
def test_a_verb_of_the_holder_needs_the_live_attempt(driver: Driver, state: State, verb: Verb) -> None:
    """E14.2, B23: without a fence, and with another's, it is a stale claim and no row changes."""
    made = in_state(driver, state)
    before = db.row_hash(made.id)
    for fence in (None, str(uuid.uuid4())):
        answer = durable(lambda fence=fence: moves.apply([move_of(verb, made, fence=fence)]))[0]
        refused(answer, "stale_claim")
    assert db.row_hash(made.id) == before


@pytest.mark.parametrize("verb", sorted(set(Verb) - FENCED - {Verb.CLAIM}))
def test_a_job_that_is_not_there_is_a_refusal_in_its_place(driver: Driver, verb: Verb) -> None:
    """A11: and its neighbour in the batch is moved all the same."""
    made = in_state(driver, State.QUEUED)
    ghost, real = durable(lambda: moves.apply([
        move_of(verb, made._replace(id=str(uuid.uuid4()))), move_of(Verb.CANCEL, made)]))
    refused(ghost, "job_not_found")
    assert isinstance(real, Moved)


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_a_revision_that_has_moved_on_is_refused(driver: Driver, state: State) -> None:
    """B28, E12: If-Match by the count of moves, asked for before anything else."""
    made = in_state(driver, state)
    before, revision = db.row_hash(made.id), Job.objects.get(pk=made.id).revision
    for wrong in (revision - 1, revision + 1):
        answer = driver.move(made.id, Verb.CANCEL, revision=wrong)
        assert refused(answer, "revision_mismatch").facts["revision"] == revision
    assert db.row_hash(made.id) == before
    assert isinstance(driver.move(made.id, Verb.CANCEL, revision=revision), Moved)


ABORTED = [
    (Verb.FAIL, "failures"),
    (Verb.LAPSE, "lapses"),
    (Verb.RELEASE, "releases"),
    (Verb.INTERRUPT, "interruptions"),
    (Verb.PAUSE, "pauses"),
    (Verb.STOP, None),
]


def abort(job_id: str, reason: str = "abort_requested") -> None:
    """A pending abort, as the command will leave it."""
    assert not isinstance(durable(lambda: record([Fact(job_id, Kind.COMMAND, {"by": "x"}, abort_reason=reason)]))[0],
                          JobsError)


@pytest.mark.parametrize("state", sorted(HELD))
@pytest.mark.parametrize(("verb", "counter"), ABORTED)
def test_a_pending_abort_turns_every_other_end_into_cancelled(
        driver: Driver, verb: Verb, counter: str | None, state: State) -> None:
    """E1, E5: failure, lapse, release, interruption and pause; the abort's reason is the job's."""
    made = in_state(driver, state)
    abort(made.id, "no longer wanted")
    answer = durable(lambda: moves.apply([move_of(verb, made)]))[0]
    job = Job.objects.get(pk=made.id)
    check(made.id)
    assert isinstance(answer, Moved)
    assert (job.state, job.reason, job.abort_reason) == ("cancelled", "no longer wanted", None)
    if counter:
        assert getattr(job, counter) == 1
    assert not DeadLetter.objects.filter(job_id=made.id).exists()


@pytest.mark.parametrize("state", sorted(HELD))
def test_a_completion_wins_over_a_pending_abort(driver: Driver, state: State) -> None:
    """E1, case-A11."""
    made = in_state(driver, state)
    abort(made.id)
    assert isinstance(durable(lambda: moves.apply([move_of(Verb.COMPLETE, made)]))[0], Moved)
    assert check(made.id).state == "completed"


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.PAUSE, Verb.SUPERSEDE])
def test_a_person_may_give_a_long_reason_also_while_the_job_is_held(driver: Driver, verb: Verb) -> None:
    """B12, E2: 512 characters on the job; the attempt keeps a code of 64."""
    made = in_state(driver, State.LEASED)
    reason = "because " * 64
    assert isinstance(driver.move(made.id, verb, reason=reason), Moved)
    assert Job.objects.get(pk=made.id).reason == reason
    assert reason.startswith(str(attempt(str(made.fence)).reason_code))


def test_an_honoured_abort_with_a_long_reason_settles(driver: Driver) -> None:
    """E5, A55: the abort's reason is a person's text of up to 512 characters."""
    made = in_state(driver, State.RUNNING)
    abort(made.id, "x" * 512)
    assert isinstance(durable(lambda: moves.apply([move_of(Verb.STOP, made)]))[0], Moved)
    assert Job.objects.get(pk=made.id).reason == "x" * 512


def test_a_requeue_without_an_open_letter_is_refused_by_the_write(driver: Driver) -> None:
    """E1, C29: the letter is in the WHERE; a discarded job stays as it is."""
    made = in_state(driver, State.FAILED)
    driver.discard(made.id)
    before = db.row_hash(made.id)
    refused(driver.move(made.id, Verb.REQUEUE), "not_dead_lettered")
    assert db.row_hash(made.id) == before


def test_an_empty_batch_is_no_statement(driver: Driver) -> None:
    """DESIGN 4: one door, batched."""
    assert durable(lambda: moves.apply([])) == []


def test_a_batch_of_mixed_verbs_answers_in_order(driver: Driver) -> None:
    """DESIGN 4: a refusal stands in its place and changes nothing for the others."""
    ids = [driver.enqueue("echo", {"value": str(n)}) for n in range(6)]
    held: dict[str, Any] = {job.id: job.fence for job in driver.claim(3)}
    batch = []
    for n, job_id in enumerate(ids):
        verb = (Verb.COMPLETE, Verb.FAIL, Verb.RELEASE, Verb.CANCEL, Verb.RESUME, Verb.PAUSE)[n]
        batch.append(move_of(verb, Made(job_id, held.get(job_id))))
    answers = durable(lambda: moves.apply(batch))
    assert [a.state.value if isinstance(a, Moved) else a.reason_code for a in answers] == [
        "completed", "queued", "queued", "cancelled", "not_paused", "paused"]
    for job_id in ids:
        check(job_id)
