"""Many dead letters at once: clusters, bulk answers that count what they did, a changed input (C22 to C29, E4, E12)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from jobs import clock, publish
from jobs.errors import JobsError
from jobs.models import BulkItem, BulkOperation, DeadLetter, Receipt
from jobs.services import dead_letters, operations, tenancy, triage
from jobs.services.operations import Pace
from jobs.services.retention import Retention
from jobs.services.triage import Triage
from jobs.states import State
from jobs.store import matching
from jobs.store.matching import Match
from tests import database as db
from tests.driver import Driver, check
from tests.making import archive, in_state, tenant_id
from tests.races.threads import elsewhere, together

BY = "user:alice"


def failed(driver: Driver, number: int = 1, message: str = "it broke", type_: str = "echo",
           **options: Any) -> list[str]:
    """So many jobs with an open dead letter; their ids in the order of their letters."""
    made = []
    for _ in range(number):
        made.append(driver.enqueue(type_, **options))
        driver.fail(driver.claim_one(), message=message, retryable=False)
    return made


def begin(verb: str = "requeue", match: Match = Match(), **more: Any) -> BulkOperation:  # noqa: B008
    return operations.begin(verb, match, by=BY, reason=more.pop("reason", "a bug was fixed"), **more)


def run(answer: BulkOperation, duty: Triage | None = None, limit: int = 500) -> BulkOperation:
    """Carry it on as long as there is something to do at once."""
    duty = duty or Triage()
    while duty.carry_on(answer.pk, limit):
        pass
    answer.refresh_from_db()
    return answer


def letter_of(job_id: str) -> DeadLetter:
    return DeadLetter.objects.filter(job_id=job_id).latest("id")


def refusal_of(act: Callable[..., Any], *args: Any, **more: Any) -> JobsError:
    with pytest.raises(JobsError) as refusal:
        act(*args, **more)
    return refusal.value


# --- clusters ------------------------------------------------------------------------------------------------------


def test_letters_that_failed_alike_are_one_cluster(driver: Driver) -> None:
    """DESIGN 7.3: definition, reason, code and the error without what differs."""
    alike = [failed(driver, message=f"timeout after {n} s on /srv/{n}.txt", tenant=f"t{n}")[0] for n in range(3)]
    other = failed(driver, message="no such user")[0]
    driver.enqueue()
    driver.fail(driver.claim_one(), code="budget_exhausted", message="timeout after 9 s on /srv/9.txt")
    found = matching.groups(Match(), "size", 10, 0)
    assert (found.clusters, found.letters, found.cut) == (3, 5, False)
    biggest = found.shown[0]
    assert (biggest.size, biggest.tenants, len(biggest.top)) == (3, 3, 3)
    assert (biggest.first, biggest.last) == (letter_of(alike[0]).pk, letter_of(alike[2]).pk)
    assert {letter_of(job).cluster for job in alike} == {biggest.cluster}
    assert letter_of(alike[0]).error == "timeout after <n> s on <path>"
    assert letter_of(other).cluster != biggest.cluster
    latest = [g.last for g in matching.groups(Match(), "latest", 10, 0).shown]
    assert latest == sorted((g.last for g in found.shown), reverse=True)
    cut = matching.groups(Match(), "size", 1, 1, most=4)
    assert (len(cut.shown), cut.clusters, cut.letters, cut.cut) == (1, 3, 4, True)


def test_every_way_to_a_letter_leaves_a_cluster(driver: Driver) -> None:
    """E4: a report, a lapse, a deadline, spent claims, an input that does not read."""
    from jobs.states import Verb

    failed(driver)
    spoilt = driver.enqueue()
    job = driver.claim_one()
    driver.move(spoilt, Verb.SPOIL, fence=job.fence, reason="field value: 7 is no text")
    late = driver.enqueue(deadline_at=clock.now() + timedelta(seconds=5))
    lapsing = driver.enqueue("sleepy", {"seconds": 1}, retry=None)
    for _ in range(10):
        driver.pass_time(400)
        driver.claim(1)
        db.pass_time(40)
        driver.recover()
    from jobs.services.recovery import deadlines

    deadlines()
    told = {str(d.job_id): (d.reason, d.reason_code, d.error, d.version, d.house) for d in DeadLetter.objects.all()}
    assert told[spoilt] == ("terminal_error", "invalid_persisted_input", "field value: <n> is no text", 1, False)
    assert told[late][:3] == ("deadline_exceeded", None, "")
    assert told[lapsing][:3] == ("quarantined", "lease_expired", "")
    assert not DeadLetter.objects.filter(cluster=None).exists()
    assert DeadLetter.objects.values("cluster").distinct().count() == DeadLetter.objects.count()


def test_letters_of_an_earlier_release_are_put_into_their_clusters(driver: Driver) -> None:
    """J03: workers of the release before write letters without cluster; the duty reads them."""
    jobs = failed(driver, 3, message="line 12 is bad")
    mine = letter_of(jobs[0])
    db.rows("UPDATE jobs_dead_letter SET cluster = NULL, error = NULL, version = NULL WHERE id <> %s RETURNING 1",
            mine.pk)
    assert {g.cluster for g in matching.groups(Match(), "size", 10, 0).shown} == {mine.cluster, ""}
    assert matching.count(Match(cluster="")) == 2
    duty = Triage()
    assert duty.tick(2) is True
    assert duty.tick(2) is False
    assert {(d.cluster, d.error, d.version) for d in DeadLetter.objects.all()} == {(mine.cluster, "line <n> is bad", 1)}


def test_the_house_s_own_letters_stand_apart(driver: Driver) -> None:
    """E11: deliveries and the like are in no list of the jobs' letters."""
    job = failed(driver)[0]
    db.rows("UPDATE jobs_dead_letter SET house = true WHERE job_id = %s RETURNING 1", job)
    assert matching.count(Match()) == 0
    assert matching.count(Match(house=True)) == 1


def test_each_filter_narrows(driver: Driver) -> None:
    """C23, C25: workspace, tenant, type, reason, cluster, since, a selection."""
    a = failed(driver, 2, tenant="a")
    b = failed(driver, 1, tenant="b", type_="echo-thread")
    place = tenancy.workspace()
    ids = {job: letter_of(job).pk for job in a + b}
    cases = {
        Match(tenant_id=tenant_id("a")): a, Match(type="echo-thread"): b, Match(workspace_id=place.pk): a + b,
        Match(workspace_id=place.pk + 1): [], Match(reason="quarantined"): [],
        Match(cluster=letter_of(b[0]).cluster): b,
        Match(since=letter_of(a[1]).opened_at): [a[1], *b], Match(letters=(ids[a[0]], ids[b[0]])): [a[0], b[0]],
        Match(upto=ids[a[0]]): a[:1],
    }
    for bulk, (match, jobs) in enumerate(cases.items(), 1):
        assert matching.gather(match, bulk, None, 0, 10) == (len(jobs), None)
        gathered = BulkItem.objects.filter(bulk_id=bulk).order_by("number").values_list("letter_id", "job_id")
        assert [(pk, str(job)) for pk, job in gathered] == [(ids[j], j) for j in jobs], match
        assert matching.newest(match, None, 10) == [ids[j] for j in reversed(jobs)], match
        assert matching.count(match) == len(jobs)
    assert matching.newest(Match(), ids[b[0]], 1) == [ids[a[1]]]


# --- bulk answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["requeue", "discard"])
def test_all_that_match_are_answered_and_what_is_shown_is_done(driver: Driver, verb: str) -> None:
    """RELIABILITY 6.2: count shown = count done; each has its receipt with who and why, and the fold holds (E12)."""
    jobs = failed(driver, 7)
    answer = begin(verb)
    later = failed(driver)[0]
    assert (answer.expected, answer.done) == (7, 0)
    run(answer, limit=3)
    assert (answer.done, answer.skipped, answer.end) == (7, {}, "finished")
    kind = "job.requeued" if verb == "requeue" else "job.discarded"
    for job in jobs:
        check(job)
        told = json.loads(Receipt.objects.filter(job_id=job).latest("number").body)
        assert (told["by"], told["reason"], told["bulk"]) == (BY, "a bug was fixed", answer.pk)
        assert Receipt.objects.filter(job_id=job).latest("number").kind == kind
        letter = letter_of(job)
        assert (letter.resolution, letter.resolved_by, letter.bulk_id) == (verb.rstrip("e") + "ed", BY, answer.pk)
        assert driver.state(job) == ("queued" if verb == "requeue" else "failed")
    assert letter_of(later).resolved_at is None


def test_what_cannot_start_again_is_skipped_by_its_code(driver: Driver) -> None:
    """E4: archived tenants, unregistered versions, superseded targets."""
    good = failed(driver)[0]
    gone = failed(driver)[0]
    old = in_state(driver, State.FAILED, target="thing").id
    driver.cancel(driver.enqueue("echo", target="thing"))
    closed = failed(driver, tenant="closed")[0]
    archive("closed")
    db.rows("UPDATE jobs_job SET version = 99 WHERE id = %s RETURNING 1", gone)
    answer = run(begin())
    assert answer.done == 1
    assert answer.skipped == {"tenant_archived": 1, "target_superseded": 1, "unregistered_version": 1}
    assert (answer.looked_at, answer.end) == (4, "finished")
    assert driver.state(good) == "queued"
    assert {driver.state(j) for j in (gone, old, closed)} == {"failed"}


def test_a_letter_that_somebody_answers_meanwhile_is_told_of(driver: Driver) -> None:
    """Answered by hand between two batches, and between the look and the lock."""
    jobs = failed(driver, 4)
    answer = begin()
    duty = Triage()
    assert duty.carry_on(answer.pk, 1)
    dead_letters.discard(letter_of(jobs[1]), by="user:bob")
    run(answer, duty)
    assert (answer.done, answer.skipped, answer.end) == (3, {"not_dead_lettered": 1}, "finished")
    assert [i.outcome for i in operations.items(answer.pk, after=0, limit=10).items] == [
        "done", "not_dead_lettered", "done", "done"]
    assert letter_of(jobs[1]).resolution == "discarded"
    found = dead_letters.requeue_many([letter_of(j).pk for j in jobs], by=BY)
    assert {a.reason_code for a in found} == {"not_dead_lettered"}
    for job in jobs:
        check(job)


def test_the_same_form_twice_is_one_answer(driver: Driver) -> None:
    """case-G03: a double submit is harmless, at the same moment too; the form for something else is refused."""
    failed(driver, 2)
    token = uuid.uuid4()
    made = together([lambda: begin(token=token).pk] * 4)
    assert len(set(made)) == 1
    assert BulkOperation.objects.count() == 1
    assert refusal_of(begin, "discard", token=token).reason_code == "token_used"
    assert refusal_of(begin, match=Match(type="echo"), token=token).reason_code == "token_used"
    assert begin(match=Match(upto=BulkOperation.objects.get().upto), token=token).pk == made[0]


@pytest.mark.parametrize(("more", "code"), [
    ({"reason": ""}, "invalid_reason"), ({"reason": "x" * 513}, "invalid_reason"), ({"verb": "delete"}, "unknown_verb"),
    ({"match": Match(letters=())}, "invalid_selection"), ({"match": Match(type="nothing")}, "nothing_matches"),
    ({"pace": Pace(rate=0)}, "invalid_rate"), ({"pace": Pace(most_failed=101)}, "invalid_most_failed"),
    ({"verb": "discard", "pace": Pace(canary=True)}, "invalid_pace"),
])
def test_a_bulk_answer_that_makes_no_sense_is_refused(driver: Driver, more: dict[str, Any], code: str) -> None:
    failed(driver)
    assert refusal_of(begin, **more).reason_code == code
    assert not BulkOperation.objects.exists()


def test_a_stop_is_honoured_within_one_batch(driver: Driver) -> None:
    """case-B13: what was done stays done and counted, nothing more is."""
    jobs = failed(driver, 5)
    answer, duty = begin(), Triage()
    assert duty.carry_on(answer.pk, 2)
    assert operations.stop(answer.pk, by="user:bob")
    assert not operations.stop(answer.pk, by="user:carol")
    run(answer, duty)
    assert (answer.done, answer.end, answer.ended_by) == (2, "stopped", "user:bob")
    assert [driver.state(j) for j in jobs] == ["queued"] * 2 + ["failed"] * 3


def test_a_stop_does_not_wait_for_the_batch(driver: Driver) -> None:
    """No page blocks: the batch that is on commits and is counted after the stop."""
    jobs = failed(driver, 2)
    answer = begin()

    def halt(news: Any) -> None:
        together([lambda: operations.stop(answer.pk, by="user:bob")])

    publish.in_transaction(halt)
    try:
        run(answer)
    finally:
        publish.forget(halt)
    assert (answer.end, answer.done, answer.ended_by) == ("stopped", 2, "user:bob")
    assert {driver.state(j) for j in jobs} == {"queued"}


def test_two_leaders_answer_each_letter_once(driver: Driver) -> None:
    """E2: a duty is safe with two leaders for a moment."""
    jobs = failed(driver, 30)
    answer = begin()

    def lead() -> None:
        duty = Triage()
        for _ in range(200):
            duty.carry_on(answer.pk, 2)
            if BulkOperation.objects.get(pk=answer.pk).ended:
                return

    together([lead, lead, lead])
    answer.refresh_from_db()
    assert (answer.done, answer.skipped, answer.end) == (30, {}, "finished")
    assert Receipt.objects.filter(kind="job.requeued").count() == 30
    for job in jobs:
        check(job)


CHILD = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
import django; django.setup()
from jobs import failpoints
from jobs.services.triage import Triage
duty = Triage()
assert duty.carry_on(int(sys.argv[2]), 4)
failpoints.arm(sys.argv[3], {})
while duty.carry_on(int(sys.argv[2]), 4):
    pass
"""


@pytest.mark.parametrize("place", ["requeue.written", "bulk.written", "bulk.committed"])
def test_a_kill_in_the_middle_loses_no_count(driver: Driver, place: str) -> None:
    """RELIABILITY 6.2: killed before the commit nothing of the batch is there, after it all is; another goes on."""
    jobs = failed(driver, 12)
    answer = begin()
    done = subprocess.run([sys.executable, "-c", CHILD, str(connection.settings_dict["NAME"]), str(answer.pk),
                           f"{place}=kill"], env=os.environ, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    answer.refresh_from_db()
    requeued = sum(driver.state(j) == "queued" for j in jobs)
    assert answer.done == requeued == (8 if place == "bulk.committed" else 4)
    run(answer)
    assert (answer.done, answer.end) == (12, "finished")
    for job in jobs:
        assert check(job).chain == 2


def test_a_letter_that_cannot_be_answered_holds_up_nobody(driver: Driver) -> None:
    """A hook of the site that raises for one job: it is found, counted as broken, and the others are answered."""
    jobs = failed(driver, 20)
    poison = jobs[7]

    def hook(news: Any) -> None:
        if any(id_ == poison for id_, _, _ in news):
            raise RuntimeError("not this one")

    publish.in_transaction(hook)
    try:
        answer = run(begin())
    finally:
        publish.forget(hook)
    assert (answer.done, answer.skipped, answer.end) == (19, {"broken": 1}, "finished")
    assert driver.state(poison) == "failed"
    assert letter_of(poison).resolved_at is None


def test_a_job_that_somebody_holds_is_passed_by(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction of somebody else's on one job does not stop the others."""
    monkeypatch.setattr(triage, "LOCK_MS", 100)
    jobs = failed(driver, 3)
    with elsewhere("SELECT 1 FROM jobs_job WHERE id = %s FOR NO KEY UPDATE", jobs[1]):
        answer = run(begin())
    assert (answer.done, answer.skipped, answer.end) == (2, {"locked": 1}, "finished")


def test_answers_take_turns(driver: Driver) -> None:
    """Two bulk answers go on side by side, a batch each; one that waits keeps no other from its turn."""
    failed(driver, 6, type_="echo")
    failed(driver, 2, type_="echo-thread")
    long, short = begin(match=Match(type="echo")), begin(match=Match(type="echo-thread"))
    duty = Triage()
    for _ in range(4):
        assert duty.tick(2)
    long.refresh_from_db()
    short.refresh_from_db()
    assert (long.done, short.done) == (6, 2)
    while duty.tick(2):
        pass
    assert not BulkOperation.objects.filter(ended_at=None).exists()


# --- canary and rate -----------------------------------------------------------------------------------------------


def test_the_rest_follows_a_canary_that_completed(driver: Driver) -> None:
    """DESIGN 7.3: one first; the rest when its job has completed."""
    jobs = failed(driver, 5)
    answer, duty = begin(pace=Pace(canary=True)), Triage()
    run(answer, duty)
    assert (answer.done, answer.canary_letter, answer.ended) == (1, letter_of(jobs[0]).pk, False)
    assert not duty.tick()
    job = driver.claim_one()
    driver.complete(job)
    run(answer, duty)
    assert (answer.done, answer.end) == (5, "finished")


def test_a_canary_that_fails_again_ends_it(driver: Driver) -> None:
    """DESIGN 7.3: the rest is left alone."""
    failed(driver, 5)
    answer, duty = begin(pace=Pace(canary=True)), Triage()
    run(answer, duty)
    driver.fail(driver.claim_one(), retryable=False)
    run(answer, duty)
    assert (answer.done, answer.end) == (1, "canary_failed")
    assert matching.count(Match()) == 5


def test_two_leaders_send_one_canary(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that was handed over late: what the other one has sent meanwhile is looked at under the lock."""
    failed(driver, 5)
    answer, first, second = begin(pace=Pace(canary=True)), Triage(), Triage()
    monkeypatch.setattr(second, "_may_go", lambda found: first.carry_on(answer.pk))
    assert second.carry_on(answer.pk)
    answer.refresh_from_db()
    assert (answer.done, answer.end) == (1, None)
    assert matching.count(Match()) == 4


def test_the_canary_is_the_first_that_can_start_and_may_be_passed_over_by_hand(driver: Driver) -> None:
    """A letter that is skipped tells nothing; a person may send the rest before the canary's end."""
    gone = failed(driver)[0]
    failed(driver, 3)
    db.rows("UPDATE jobs_job SET version = 99 WHERE id = %s RETURNING 1", gone)
    answer, duty = begin(pace=Pace(canary=True)), Triage()
    run(answer, duty)
    assert (answer.done, answer.skipped) == (1, {"unregistered_version": 1})
    assert operations.let_go(answer.pk)
    assert not operations.let_go(answer.pk)
    run(answer, duty)
    assert (answer.done, answer.end) == (3, "finished")


def test_a_rate_is_kept_and_stops_itself_when_too_many_fail_again(driver: Driver,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 7.3: so many a second; over so many percent of failures again it ends."""
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    failed(driver, 40)
    answer, duty = begin(pace=Pace(rate=6, most_failed=50)), Triage()
    run(answer, duty)
    assert answer.done == 1
    now[0] += 1.0
    run(answer, duty)
    assert answer.done == 7
    now[0] += 60.0
    run(answer, duty)
    assert answer.done == 19
    for n, job in enumerate(driver.claim(19)):
        driver.complete(job) if n < 9 else driver.fail(job, retryable=False)
    now[0] += 2.0
    run(answer, duty)
    assert (answer.done, answer.end) == (19, "too_many_failed")


# --- another input -------------------------------------------------------------------------------------------------


def test_an_input_is_changed_through_the_codec_and_the_difference_is_kept(driver: Driver) -> None:
    """E12, E6: the receipt has who, why, where and hashes, and nothing of the payload; the fingerprint stays."""
    job = driver.enqueue("echo", {"value": "wrong-secret-1", "path": ""})
    driver.fail(driver.claim_one(), retryable=False)
    before = driver.job(job)
    dead_letters.requeue(letter_of(job), by=BY, reason="a typo", input={"value": "right-secret-2"})
    view = check(job)
    after = driver.job(job)
    assert json.loads(after.input) == {"path": "", "value": "right-secret-2"}
    assert view.input_hash == bytes(after.input_hash).hex() != bytes(before.input_hash).hex()
    assert (after.state, after.chain, bytes(after.fingerprint)) == ("queued", 2, bytes(before.fingerprint))
    told = Receipt.objects.get(job_id=job, kind="job.changed")
    body = json.loads(told.body)
    assert (body["by"], body["reason"], body["before"]) == (BY, "a typo", bytes(before.input_hash).hex())
    assert [c["at"] for c in body["changes"]] == ["/value"]
    assert set(body["changes"][0]) == {"at", "before", "after"}
    assert "secret" not in "".join(Receipt.objects.filter(job_id=job).values_list("body", flat=True))
    assert driver.claim_one().id == job


def test_a_bad_input_changes_nothing_and_names_every_fault(driver: Driver) -> None:
    """B8, B21: all faults at once, with their pointers."""
    job = failed(driver)[0]
    before = db.row_hash(job)
    error = refusal_of(dead_letters.requeue, letter_of(job), by=BY, input={"value": 7, "unknown": 1})
    assert {f["field"] for f in error.faults} == {"/value", "/unknown"}
    assert db.row_hash(job) == before
    assert letter_of(job).resolved_at is None


def test_what_may_not_start_again_is_not_changed_either(driver: Driver) -> None:
    """E4: refused before anything is written."""
    job = failed(driver, tenant="closed")[0]
    archive("closed")
    before = db.row_hash(job)
    refusal = refusal_of(dead_letters.requeue, letter_of(job), by=BY, input={"value": "x"})
    assert refusal.reason_code == "tenant_archived"
    assert db.row_hash(job) == before


def test_an_equal_input_leaves_no_receipt_of_a_change(driver: Driver) -> None:
    """E12: nothing changed, nothing said."""
    job = failed(driver, input_={"value": "x"})[0]
    dead_letters.requeue(letter_of(job), by=BY, input={"value": "x", "path": ""})
    assert not Receipt.objects.filter(kind="job.changed").exists()
    assert driver.state(job) == "queued"


def test_a_receipt_of_a_change_names_no_key_that_a_caller_has_made_up(driver: Driver) -> None:
    """E12, E13: fields of the definition are the site's words; a free key may be anybody's name, for ever."""
    job = driver.enqueue("outside", {"marie-curie": {"age": 1}, "kept": 2})
    for table in ("jobs_job", "jobs_claim_line"):
        db.rows(f"UPDATE {table} SET worker_group = 'default' RETURNING 1")
    driver.fail(driver.claim_one(), retryable=False)
    dead_letters.requeue(letter_of(job), by=BY, reason="a typo", input={"marie-curie": {"age": 2}, "new": 1})
    check(job)
    body = Receipt.objects.get(job_id=job, kind="job.changed").body
    assert [c["at"][:2] for c in json.loads(body)["changes"]] == ["/#", "/#", "/#"]
    for word in ("marie", "age", "kept", "new"):
        assert word not in body


def test_the_list_of_changes_is_bounded() -> None:
    """RELIABILITY: bounded everything."""
    from jobs.services.editing import difference

    told = difference({f"k{n}": n for n in range(100)}, {f"k{n}": -n - 1 for n in range(100)}, ())
    assert (len(told["changes"]), told["more"]) == (20, 80)
    few = difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": 1}, ("a", "b", "c"))
    assert [c["at"] for c in few["changes"]] == ["/a/1/b", "/c"]


# --- the end -------------------------------------------------------------------------------------------------------


def test_bulk_answers_outlive_their_time_no_longer_than_jobs(driver: Driver) -> None:
    """E13: 30 days after their end; one that goes on is kept."""
    failed(driver, 2)
    ended = run(begin("discard"))
    failed(driver, 1)
    begin("discard")
    db.pass_time(31 * 86_400)
    duty = Retention()
    while duty.tick():
        pass
    assert not BulkOperation.objects.filter(pk=ended.pk).exists()
    assert BulkOperation.objects.count() == 1
    db.reset_clock()
