"""Late holders change nothing, repeats are recognised, and a batch protects its members from each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs import publish
from jobs.errors import JobsError, StaleFence
from jobs.models import Artifact, Job
from jobs.outcomes import Failed, Interrupted, Outcome, Released, Stopped
from jobs.registry import Definition
from jobs.services import assignments, progress, settlement
from jobs.services.settlement import Report
from jobs.states import Verb
from jobs.store.claim import Claimer
from jobs.store.moves import Moved
from tests import database as db
from tests.driver import Driver, check, done, refused

OUTCOMES: list[Outcome] = [done("late"), Failed("attempt_error"), Stopped(), Released(), Interrupted()]
VOIDS: dict[str, Callable[[Driver, str], object]] = {
    "cancelled": lambda driver, id_: driver.cancel(id_),
    "paused": lambda driver, id_: driver.pause(id_),
    "superseded": lambda driver, id_: driver.enqueue("staged", target="doc"),
    "recovered": lambda driver, id_: (driver.pass_time(60), driver.recover()),
    "recovered and claimed again": lambda driver, id_: (driver.pass_time(60), driver.recover(), driver.claim_one()),
}


def staged() -> Definition:
    from jobs.conf import registry

    return registry().current("staged")


@pytest.mark.parametrize("void", VOIDS.values(), ids=VOIDS)
def test_a_holder_that_lost_its_claim_can_change_nothing(driver: Driver, void: Callable[[Driver, str], object]) -> None:
    """B23, C35, E14.2, E14.21, E15: late settle, start, heartbeat, progress, checkpoint, each with no row changed."""
    driver.enqueue("staged", target="doc")
    late = driver.claim_one()
    void(driver, late.id)
    before = db.row_hash(late.id)
    for outcome in OUTCOMES:
        answer = driver.settle(late, outcome)
        # "I stopped" after a cancel says what has happened already.
        if not (isinstance(outcome, Stopped) and isinstance(answer, Moved) and answer.repeated):
            refused(answer, "stale_claim")
    refused(driver.start(late), "stale_claim")
    assert driver.extend(late) == {}
    with pytest.raises(StaleFence):
        progress.stage(staged(), late.id, late.fence, "read", "started", "test")
    with pytest.raises(StaleFence):
        progress.checkpoint(late.id, late.fence, 5, {"a": 1}, "test")
    assert db.row_hash(late.id) == before


def test_a_refusal_says_where_the_job_stands(driver: Driver) -> None:
    """E5, A39: the holder learns that the job has ended, and how."""
    driver.enqueue()
    job = driver.claim_one()
    driver.cancel(job.id)
    assert refused(driver.complete(job), "stale_claim").facts["status"] == "cancelled"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_the_same_end_again_is_a_quiet_yes(driver: Driver, outcome: Outcome) -> None:
    """E5: the first answer was lost on its way; the repeat changes nothing."""
    driver.enqueue()
    job = driver.claim_one()
    first = driver.settle(job, outcome)
    before = db.row_hash(job.id)
    again = driver.settle(job, outcome)
    assert isinstance(first, Moved)
    assert isinstance(again, Moved)
    assert (first.repeated, again.repeated) == (False, True)
    assert again.state == first.state
    assert db.row_hash(job.id) == before


@pytest.mark.parametrize(("first", "other"), [
    (done("a"), done("b")), (done("a"), Failed("attempt_error")), (Failed("attempt_error"), Failed("rate_limited")),
    (Failed("attempt_error"), done("a")), (Released(), Interrupted()), (Stopped(), Released()),
])
def test_another_end_is_a_stale_claim(driver: Driver, first: Outcome, other: Outcome) -> None:
    """E5: other outcome or other body."""
    driver.enqueue()
    job = driver.claim_one()
    driver.settle(job, first)
    before = db.row_hash(job.id)
    refused(driver.settle(job, other), "stale_claim")
    assert db.row_hash(job.id) == before


def test_a_repeat_is_known_by_its_own_job_alone(driver: Driver) -> None:
    """E5: an ended attempt of one job is no answer about another."""
    driver.enqueue()
    other = driver.enqueue()
    job = driver.claim_one()
    driver.complete(job, "x")
    before = db.row_hash(other)
    answer = settlement.settle([Report(other, job.fence, done("x"))], "test")[0]
    refused(answer, "stale_claim")
    assert db.row_hash(other) == before


def test_a_stale_member_changes_nothing_for_its_neighbours(driver: Driver) -> None:
    """DESIGN 4, B23."""
    for _ in range(3):
        driver.enqueue()
    jobs = driver.claim(3)
    driver.cancel(jobs[1].id)
    before = db.row_hash(jobs[1].id)
    answers = settlement.settle([Report(j.id, j.fence, done()) for j in jobs], "test")
    assert [a.state if isinstance(a, Moved) else a.reason_code for a in answers] == [
        "completed",
        "stale_claim",
        "completed",
    ]
    assert db.row_hash(jobs[1].id) == before


@pytest.mark.parametrize(
    "second", [done("x"), done("y"), Failed("attempt_error")], ids=["same", "other body", "failure"]
)
def test_one_job_twice_in_a_batch_ends_once(driver: Driver, second: Outcome) -> None:
    """E14.1: the first report counts; the second is a repeat or a stale claim."""
    driver.enqueue()
    job = driver.claim_one()
    first, again = settlement.settle([Report(job.id, job.fence, done("x")), Report(job.id, job.fence, second)], "test")
    kept = Artifact.objects.get(job_id=job.id)
    assert check(job.id).state == "completed"
    answers = {bytes(kept.hash): (first, again)}
    assert list(answers) in ([done("x").digest], [done("y").digest])
    won, lost = (first, again) if bytes(kept.hash) == done("x").digest else (again, first)
    assert isinstance(won, Moved)
    if second == done("x"):
        assert isinstance(lost, Moved)
        assert {won.repeated, lost.repeated} == {False, True}
    else:
        refused(lost, "stale_claim")


def test_a_late_settle_before_recovery_succeeds(driver: Driver) -> None:
    """E8, C35: an attempt lives until a move ends it."""
    driver.enqueue()
    job = driver.claim_one()
    driver.pass_time(3_600)
    assert driver.extend(job)[job.fence].state == "leased"
    driver.pass_time(3_600)
    assert driver.complete(job).state == "completed"


@pytest.mark.parametrize(
    "outcome", [done(), Failed("attempt_error"), Stopped(), Released()], ids=lambda o: type(o).__name__
)
def test_a_strict_lease_is_believed_to_its_end_and_no_longer(driver: Driver, outcome: Outcome) -> None:
    """B23, E8: `strict_lease` adds the lease to the WHERE of every holder's write."""
    driver.enqueue("strict")
    job = driver.claim_one()
    driver.pass_time(29)
    assert driver.extend(job) != {}
    driver.pass_time(29)
    assert driver.start(job).state == "running"
    driver.pass_time(2)
    before = db.row_hash(job.id)
    refused(driver.settle(job, outcome), "stale_claim")
    assert driver.extend(job) == {}
    with pytest.raises(StaleFence):
        progress.checkpoint(job.id, job.fence, 1, {"late": True}, "test")
    assert db.row_hash(job.id) == before
    driver.pass_time(4)
    assert driver.recover() == 1
    assert driver.state(job.id) == "queued"


def test_a_strict_job_settles_within_its_lease(driver: Driver) -> None:
    """B23."""
    driver.enqueue("strict")
    job = driver.claim_one()
    driver.pass_time(29)
    progress.checkpoint(job.id, job.fence, 1, {"in": "time"}, "test")
    assert driver.complete(job).state == "completed"


def test_a_heartbeat_renews_the_lease_and_writes_no_receipt(driver: Driver) -> None:
    """A45, E12: renewals move the lease alone; they never shorten it."""
    driver.enqueue()
    job = driver.claim_one()
    number = driver.job(job.id).number
    driver.pass_time(20)
    assert driver.extend(job)[job.fence] == assignments.Beat("leased", None)
    driver.pass_time(20)
    assert driver.recover() == 0
    driver.pass_time(20)
    assert driver.recover() == 1
    assert driver.job(job.id).number == number + 1


def test_checkpoints_count_upwards_and_survive_the_attempt(driver: Driver) -> None:
    """C33, C27: the next attempt starts from the last one; an older number changes nothing."""
    driver.enqueue("staged")
    job = driver.claim_one()
    progress.checkpoint(job.id, job.fence, 3, {"step": 3}, "test")
    before = db.row_hash(job.id)
    for old in (3, 2):
        with pytest.raises(JobsError):
            progress.checkpoint(job.id, job.fence, old, {"step": old}, "test")
    assert db.row_hash(job.id) == before
    assert progress.next_checkpoint(job.id, job.fence, {"step": 4}, "test") == 4
    driver.fail(job)
    driver.pass_time(10)
    again = driver.claim_one()
    assert (progress.read(again.checkpoint), again.checkpoint_number) == ({"step": 4}, 4)


@pytest.mark.parametrize(
    ("stage", "event", "code"),
    [
        ("undeclared", "started", "undeclared_stage"),
        ("read", "interrupted", "invalid_progress"),
        ("", "started", "undeclared_stage"),
    ],
)
def test_only_declared_stages_and_events_are_recorded(driver: Driver, stage: str, event: str, code: str) -> None:
    """B30, B31, E15."""
    driver.enqueue("staged")
    job = driver.claim_one()
    before = db.row_hash(job.id)
    with pytest.raises(JobsError) as refusal:
        progress.stage(staged(), job.id, job.fence, stage, event, "test")
    assert refusal.value.reason_code == code
    assert db.row_hash(job.id) == before
    progress.stage(staged(), job.id, job.fence, "read", "completed", "test")
    assert check(job.id).progress == {"event": "completed", "stage": "read"}


@pytest.mark.parametrize("code", ["two\nlines", "nul\x00", "x" * 200, "", "\ud800"])
def test_a_failure_can_always_be_stored(driver: Driver, code: str) -> None:
    """DESIGN 6, case-C10: also with a letter, whatever a handler raised."""
    driver.enqueue()
    job = driver.claim_one()
    answer = driver.settle(job, Failed(code, "no \x00 good \ud800 " + "😀" * 9_000, retryable=False))
    assert isinstance(answer, Moved)
    letter = Job.objects.get(pk=job.id).dead_letters.get()
    assert (letter.reason, letter.reason_code) == ("terminal_error", driver.job(job.id).attempts.get().reason_code)


def test_news_of_a_claim_name_the_receipt(driver: Driver) -> None:
    """E12: the number is the cursor, in the news of every move."""
    heard: list[publish.News] = []
    hook = publish.after_commit(heard.extend)
    try:
        driver.enqueue()
        job = driver.claim_one()
        driver.complete(job)
    finally:
        publish.forget(hook)
    assert [(number, state.value) for _, number, state in heard] == [(1, "queued"), (2, "leased"), (3, "completed")]


def test_a_hook_inside_the_transaction_can_undo_the_move(driver: Driver) -> None:
    """E14.18: no news without a commit, and the row as it was."""
    heard: list[publish.News] = []
    driver.enqueue()
    job = driver.claim_one()
    before = db.row_hash(job.id)

    def refuse(news: object) -> None:
        raise LookupError

    publish.in_transaction(refuse)
    publish.after_commit(heard.extend)
    try:
        with pytest.raises(LookupError):
            driver.complete(job)
    finally:
        publish.forget(refuse)
        publish.forget(heard.extend)
    assert heard == []
    assert db.row_hash(job.id) == before


def test_a_failing_hook_after_commit_undoes_nothing(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """A51, E15: side effects after commit are logged and the receipt stands."""

    def fail(news: object) -> None:
        raise LookupError("the follower is away")

    publish.after_commit(fail)
    try:
        job_id = driver.enqueue()
    finally:
        publish.forget(fail)
    assert driver.move(job_id, Verb.CANCEL).state == "cancelled"
    assert "the move stands" in caplog.text


@pytest.mark.parametrize("name", ["", "a'b", 'a"b', "a\nb", "a%sb", "x" * 201])
def test_a_holder_whose_name_would_need_escaping_is_refused(driver: Driver, name: str) -> None:
    """E12: names of holders stand in statements and bodies as they are."""
    with pytest.raises(ValueError, match="holder"):
        Claimer(pairs=[("default", "collect")], by=name)
    driver.enqueue()
    job = driver.claim_one()
    before = db.row_hash(job.id)
    with pytest.raises(ValueError, match="holder"):
        settlement.settle([Report(job.id, job.fence, done())], name)
    assert db.row_hash(job.id) == before
