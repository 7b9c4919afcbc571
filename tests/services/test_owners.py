"""Owners: whose credential runs a job; put, rotated, revoked, expired, and what becomes of the jobs (B35, B36, E10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.checks import run_checks
from django.db import transaction

from jobs import clock
from jobs.errors import Invalid, NeedsReadCommitted, RevisionMismatch, StaleFence
from jobs.models import Attempt, AttemptCap, ClaimLine, Job, Owner, Receipt
from jobs.outcomes import Released
from jobs.receipts import Kind
from jobs.services import assignments, cancellation, dead_letters, owners
from jobs.services.explain import blocker
from jobs.services.intake import Options, Request, enqueue_many
from jobs.services.owners import Owners
from jobs.states import Verb
from jobs.store import admission, moves, voiding
from jobs.store.claim import claim
from jobs.store.moves import Moved
from jobs.store.sql import durable
from jobs.store.verbs import Move
from tests import database as db
from tests.driver import Driver, check
from tests.making import limit, tenant_id
from tests.owned import put
from tests.races.threads import together
from tests.store import noise

pytestmark = pytest.mark.usefixtures("database", "owned_site")


def drained(duty: Owners) -> None:
    while duty.tick():
        pass


def row(job_id: str) -> Job:
    return Job.objects.get(pk=job_id)


def why(job_id: str) -> str | None:
    reason = blocker(row(job_id), clock.now())
    return reason and reason.code


def test_a_job_that_needs_an_owner_is_bound_to_it_and_runs(driver: Driver) -> None:
    """B35, E10: the attempt keeps a token-free binding, and counts under the owner's cap."""
    owner = put()
    driver.enqueue("owned")
    job = driver.claim_one()
    kept = Attempt.objects.get(pk=job.fence)
    assert kept.owner_binding == f'{{"generation":1,"owner":{owner.pk}}}'
    assert AttemptCap.objects.filter(attempt_id=job.fence).count() == 1
    assert owners.bound(job.fence) == (owner.pk, 1, "plain", None, True)
    assert isinstance(driver.complete(job, "8"), Moved)
    assert not AttemptCap.objects.exists()
    assert owners.bound(job.fence) is None


def test_a_job_without_a_credential_is_bound_to_nobody(driver: Driver) -> None:
    """E10: owners are only for those who ask for one."""
    put()
    driver.enqueue()
    job = driver.claim_one()
    assert Attempt.objects.get(pk=job.fence).owner_binding is None
    assert not AttemptCap.objects.exists()


def test_without_an_owner_a_job_is_paused_and_resumed_when_there_is_one(driver: Driver) -> None:
    """B27, B35: `owner_unavailable`, uncounted; only jobs paused for that reason come back (E7)."""
    waits, by_hand = driver.enqueue("owned"), driver.enqueue("owned")
    driver.pause(by_hand)
    assert driver.claim() == []
    found = row(waits)
    assert (found.state, found.reason, found.claims, found.pauses) == ("paused", "owner_unavailable", 0, 0)
    assert why(waits) == "owner_unavailable"
    put()
    assert (row(waits).state, row(by_hand).state) == ("queued", "paused")
    assert [job.id for job in driver.claim(5)] == [waits]
    check(waits)


def test_a_revoked_owner_ends_what_runs_and_late_output_cannot_commit(driver: Driver) -> None:
    """B23, B35: the claim is void in the transaction that revokes; the job waits for the next owner."""
    put()
    job_id = driver.enqueue("owned")
    job = driver.claim_one()
    owners.revoke(tenant_id(), by="person:1")
    found, ended = row(job_id), Attempt.objects.get(pk=job.fence)
    assert (found.state, found.reason, found.pauses, found.failures) == ("paused", "owner_unavailable", 1, 0)
    assert (ended.outcome, ended.reason_code) == ("paused", "owner_unavailable")
    assert assignments.extend([job.fence]) == {}
    assert isinstance(driver.complete(job), StaleFence)
    assert owners.revoke(tenant_id(), by="person:1").revision == 2
    put("other")
    again = driver.claim_one()
    assert again.id == job_id
    assert isinstance(driver.complete(again), Moved)


def test_a_rotation_interrupts_what_runs_and_it_runs_again_at_once(driver: Driver) -> None:
    """B24, B27: `credential_rotated` requeues without a failure; the new attempt is bound to the new generation."""
    owner = put()
    job_id = driver.enqueue("owned")
    job = driver.claim_one()
    assert put("other").generation == 2
    ended = Attempt.objects.get(pk=job.fence)
    assert (ended.outcome, ended.reason_code) == ("interrupted", "credential_rotated")
    assert (row(job_id).state, row(job_id).failures, row(job_id).interruptions) == ("queued", 0, 1)
    assert isinstance(driver.complete(job), StaleFence)
    again = driver.claim_one()
    assert owners.bound(again.fence) == (owner.pk, 2, "other", None, True)
    assert put("other", rotate=True).generation == 3
    assert isinstance(driver.complete(again), StaleFence)
    check(job_id)


def test_what_says_nothing_of_the_secret_disturbs_nobody(driver: Driver) -> None:
    """E10: a label, a later expiry or a capacity are no new generation."""
    put()
    driver.enqueue("owned")
    job = driver.claim_one()
    told = put(label="the vault", expires_at=clock.now() + timedelta(days=1), concurrency=3)
    assert (told.generation, told.revision, told.label, told.concurrency) == (1, 2, "the vault", 3)
    assert isinstance(driver.complete(job), Moved)


def test_an_expired_owner_settles_nothing_and_its_job_waits(driver: Driver) -> None:
    """B35: revalidated at heartbeat and at settlement, before anybody has written the expiry down."""
    put(expires_at=clock.now() + timedelta(seconds=60))
    job_id = driver.enqueue("owned")
    job = driver.claim_one()
    command = str(driver.send(job.id, "steer").command)
    assert job.fence in assignments.extend([job.fence])
    db.pass_time(61)
    assert assignments.extend([job.fence]) == {}
    assert isinstance(driver.complete(job), StaleFence)
    assert isinstance(driver.fail(job), StaleFence)
    with pytest.raises(StaleFence):
        driver.consume(job, command)
    assert row(job_id).state == "leased"
    drained(Owners())
    assert (row(job_id).state, row(job_id).reason) == ("paused", "owner_unavailable")
    assert owners.state(owners.of(tenant_id())) == "expired"
    assert why(job_id) == "owner_unavailable"
    put(expires_at=clock.now() + timedelta(seconds=60))
    assert driver.claim_one().id == job_id


def test_an_expired_owner_is_no_owner_for_a_claim(driver: Driver) -> None:
    """B35: whether or not the duty has been there."""
    put(expires_at=clock.now() + timedelta(seconds=60))
    db.pass_time(61)
    job_id = driver.enqueue("owned")
    assert driver.claim() == []
    assert row(job_id).reason == "owner_unavailable"


def test_an_owner_runs_as_many_jobs_as_it_may_and_no_job_is_given_back(driver: Driver) -> None:
    """B22, B36: one by default; a full owner's jobs are not claimed, and nobody else of the tenant waits for them."""
    put()
    first, second = driver.enqueue("owned"), driver.enqueue("owned")
    plain = driver.enqueue()
    jobs = driver.claim(5)
    assert [job.id for job in jobs] == [first, plain]
    assert (row(second).state, row(second).gate, row(second).claims) == ("queued", "exclusive", 0)
    assert why(second) == "owner_at_capacity"
    assert Receipt.objects.filter(job_id=second).count() == 1
    driver.complete(jobs[0], "8")
    assert driver.claim_one().id == second


def test_the_capacity_of_an_owner_is_its_own_or_the_sites(driver: Driver, settings) -> None:
    """B22: per owner, from the setting."""
    settings.JOBS = {**settings.JOBS, "OWNER_CONCURRENCY": 2}
    put(tenant="site")
    put(tenant="own", concurrency=3)
    for n in range(10):
        driver.enqueue("owned", tenant=("site", "own")[n % 2])
    claimed = [job.tenant_id for job in driver.claim(20)]
    assert (claimed.count(tenant_id("site")), claimed.count(tenant_id("own"))) == (2, 3)
    put(tenant="own", concurrency=4)
    assert len(driver.claim(20)) == 1


def test_jobs_of_an_exclusive_group_wait_for_the_owner_too(driver: Driver) -> None:
    """B36, C11: both caps hold, and the end of one attempt lets the next group in at once."""
    limit(exclusive_group_max=1)
    put()
    ids = [driver.enqueue("owned", exclusive_group=group) for group in ("a", "b", "b", "c")]
    done = []
    while jobs := driver.claim(5):
        assert len(jobs) == 1
        done.append(jobs[0].id)
        driver.complete(jobs[0], "8")
    assert sorted(done) == sorted(ids)


@pytest.mark.parametrize("end", ["complete", "fail", "release", "cancel", "lapse"])
def test_each_end_of_an_attempt_lets_the_next_one_in(driver: Driver, end: str) -> None:
    """B36: whoever ends it."""
    put()
    driver.enqueue("owned")
    second = driver.enqueue("owned")
    job = driver.claim(5)[0]
    assert row(second).gate == "exclusive"
    match end:
        case "complete":
            driver.complete(job, "8")
        case "fail":
            driver.fail(job)
        case "release":
            driver.settle(job, Released(60_000_000))
        case "cancel":
            cancellation.cancel(job.id, by="person:1")
        case "lapse":
            db.pass_time(40)
            moves.apply([Move(job.id, Verb.LAPSE, fence=job.fence)])
    assert row(second).gate is None
    assert len(driver.claim(5)) == 1


def test_what_a_lost_release_leaves_waiting_is_let_in_by_the_duty(driver: Driver, monkeypatch) -> None:
    """DESIGN 4: a process may die between the commit and what follows it."""
    put()
    driver.enqueue("owned")
    second = driver.enqueue("owned")
    driver.claim(5)
    monkeypatch.setattr(admission, "release_after", lambda ended: None)
    with monkeypatch.context() as patch:
        patch.setattr(owners, "_follow", lambda tenant: None)
        cancellation.cancel(str(Job.objects.exclude(pk=second).get().pk), by="person:1")
    assert driver.claim() == []
    drained(Owners())
    assert driver.claim_one().id == second


def test_jobs_behind_a_full_owner_are_paused_once_it_is_gone(driver: Driver) -> None:
    """B35: they wait for an owner, not for capacity."""
    put()
    ids = [driver.enqueue("owned") for _ in range(4)]
    driver.claim(5)
    owners.revoke(tenant_id(), by="person:1")
    driver.claim(5)
    assert {(row(id_).state, row(id_).reason) for id_ in ids} == {("paused", "owner_unavailable")}
    put()
    assert len(driver.claim(5)) == 1


def test_very_many_jobs_resume_in_batches(driver: Driver) -> None:
    """E10: a batch for the one who puts the owner, the rest by the duty; other tenants' jobs stay."""
    enqueue_many([Request("owned", {}, Options(tenant=("mine", "other")[n % 2])) for n in range(700)])
    while Job.objects.filter(state="queued").exists():
        driver.claimer.cursors.update(dict.fromkeys(driver.claimer.pairs, 0))
        durable(lambda: claim(driver.claimer, 50))
    assert Job.objects.filter(state="paused").count() == 700
    put(tenant="mine")
    assert 0 < Job.objects.filter(state="queued").count() <= 200
    drained(Owners())
    left = Job.objects.filter(state="paused")
    assert set(left.values_list("tenant_id", "reason")) == {(tenant_id("other"), "owner_unavailable")}
    assert left.count() == 350
    assert ClaimLine.objects.filter(tenant_id=tenant_id("mine")).exists()


def test_two_changes_of_an_owner_cannot_overtake_each_other() -> None:
    """B35: If-Match by revision; nothing is changed by the one that comes late."""
    owner = put()
    with pytest.raises(RevisionMismatch):
        put("other", revision=owner.revision + 1)
    with pytest.raises(RevisionMismatch):
        owners.revoke(tenant_id(), by="test", revision=7)
    with pytest.raises(RevisionMismatch):
        put("other", tenant="new", revision=1)
    assert not Owner.objects.filter(tenant_id=tenant_id("new")).exists()
    assert owners.of(tenant_id()).reference == "plain"
    assert put("other", revision=1).revision == 2


def test_verbs_of_owners_join_the_callers_transaction(driver: Driver) -> None:
    """DESIGN 4: what is rolled back has not happened."""
    put()
    driver.enqueue("owned")
    job = driver.claim_one()
    with transaction.atomic():
        owners.revoke(tenant_id(), by="test")
        transaction.set_rollback(True)
    assert isinstance(driver.complete(job, "8"), Moved)


@pytest.mark.parametrize("change", [lambda: put(rotate=True), lambda: owners.revoke(tenant_id(), by="test")],
                         ids=["rotate", "revoke"])
def test_above_read_committed_an_owner_cannot_be_changed(driver: Driver, change: Callable[[], object]) -> None:
    """B23, B24: such a transaction does not see what was claimed since it began, which would settle afterwards."""
    before = put()
    driver.enqueue("owned")
    with transaction.atomic():
        noise.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert db.rows("SELECT count(*) FROM jobs_attempt") == [(0,)]
        [job] = together([driver.claim_one])
        with pytest.raises(NeedsReadCommitted) as refusal:
            change()
        assert (refusal.value.reason_code, refusal.value.field) == ("needs_read_committed", "owner")
        assert db.rows("SELECT 1") == [(1,)]
    assert owners.of(tenant_id()).revision == before.revision
    change()
    assert isinstance(driver.complete(job), StaleFence)


@pytest.mark.parametrize(("said", "field"), [
    ({"reference": ""}, "reference"), ({"reference": "a\nb"}, "reference"), ({"reference": "x" * 501}, "reference"),
    ({"reference": 5}, "reference"), ({"label": "a\x00"}, "label"), ({"label": "x" * 201}, "label"),
    ({"concurrency": 0}, "concurrency"), ({"concurrency": True}, "concurrency"), ({"concurrency": 1.5}, "concurrency"),
    ({"expires_at": "later"}, "expires_at"), ({"expires_at": clock.moment(0)}, "expires_at"),
])
def test_what_cannot_be_said_of_an_owner_is_refused(said: dict, field: str) -> None:
    """E10: named by field and code; nothing is written."""
    with pytest.raises(Invalid) as refused:
        put(**{"reference": "plain", **said})
    assert refused.value.field == field
    assert not Owner.objects.exists()


@pytest.mark.parametrize("reference", ["broken", "none", "number", "empty"])
def test_a_resolver_without_an_answer_is_no_failure_and_says_nothing(driver: Driver, reference: str, caplog) -> None:
    """B24, E10: what it raises may quote a secret, and stands nowhere."""
    put(reference)
    driver.enqueue("owned")
    job = driver.claim_one()
    with pytest.raises(owners.Unavailable):
        owners.resolve(job.fence, job.id)
    assert "s3cr3t" not in caplog.text
    assert "resolver" in caplog.text
    driver.settle(job, owners.unavailable(job.claims))
    found = row(job.id)
    assert (found.state, found.reason, found.failures) == ("queued", "owner_unavailable", 0)
    assert found.available_at - clock.now() > timedelta(seconds=10)
    assert [owners.unavailable(n).after_us // 1_000_000 for n in (1, 2, 3, 9, 5_000)] == [15, 30, 60, 300, 300]


def test_a_backlog_is_not_claimed_in_vain_while_the_resolver_is_away(driver: Driver) -> None:
    """B24: after one that had no secret the others wait, and other work of the tenant goes on; a new secret ends it."""
    put("broken", concurrency=10)
    for _ in range(30):
        driver.enqueue("owned")
    held = driver.claim(4)
    with pytest.raises(owners.Unavailable):
        owners.resolve(held[0].fence, held[0].id)
    for job in held:
        driver.settle(job, owners.unavailable(job.claims))
    other = driver.enqueue("echo")
    assert [job.id for _ in range(5) for job in driver.claim(10)] == [other]
    drained(Owners())
    assert driver.claim(10) == []
    told = blocker(Job.objects.filter(claims=0).earliest("pk"), clock.now())
    assert told is not None
    assert told.code == "owner_away"
    db.pass_time(16)
    drained(Owners())
    assert len(driver.claim(10)) == 10
    assert Attempt.objects.count() == 4 + 1 + 10


def test_a_new_secret_ends_the_wait_for_the_old_one(driver: Driver) -> None:
    """B24, B35: the first claim after it has jobs again."""
    put("broken")
    driver.enqueue("owned")
    waits = driver.enqueue("owned")
    job = driver.claim_one()
    with pytest.raises(owners.Unavailable):
        owners.resolve(job.fence, job.id)
    driver.settle(job, owners.unavailable(job.claims))
    assert driver.claim(10) == []
    put("plain")
    assert [job.id for job in driver.claim(10)] == [waits]


def test_a_secret_is_given_to_the_live_attempt_alone(driver: Driver) -> None:
    """B35: not after a rotation, not after the end."""
    put()
    driver.enqueue("owned")
    job = driver.claim_one()
    assert owners.resolve(job.fence, job.id).startswith("s3cr3t")
    put("other")
    with pytest.raises(owners.Unavailable):
        owners.resolve(job.fence, job.id)


def test_a_definition_that_needs_an_owner_needs_a_resolver(settings) -> None:
    """E10: a system check says so, and names one that cannot be imported."""
    assert not [m for m in run_checks(tags=["jobs"]) if m.id in ("jobs.E021", "jobs.E022")]
    settings.JOBS = {**settings.JOBS, "CREDENTIAL_RESOLVER": None}
    assert [m.id for m in run_checks(tags=["jobs"]) if m.id.startswith("jobs.E02")] == ["jobs.E022"]
    settings.JOBS = {**settings.JOBS, "CREDENTIAL_RESOLVER": "tests.owned.nobody"}
    assert [m.id for m in run_checks(tags=["jobs"]) if m.id.startswith("jobs.E02")] == ["jobs.E021"]


def test_a_dead_letter_comes_back_under_the_owner_of_its_day(driver: Driver) -> None:
    """B35: the binding is the attempt's, not the job's."""
    put()
    job_id = driver.enqueue("owned")
    driver.fail(driver.claim_one(), retryable=False)
    put("other")
    dead_letters.requeue(row(job_id).dead_letters.get(), by="person:1", reason="again")
    assert owners.bound(driver.claim_one().fence)[:3] == (owners.of(tenant_id()).pk, 2, "other")


def test_the_receipts_of_a_pause_and_a_rotation_name_who_did_it(driver: Driver) -> None:
    """E12: facts, and no reference."""
    put()
    job_id = driver.enqueue("owned")
    driver.claim_one()
    put("other")
    driver.claim_one()
    owners.revoke(tenant_id(), by="person:7")
    said = list(Receipt.objects.filter(job_id=job_id).order_by("number").values_list("kind", "body"))
    assert [kind for kind, _ in said][-4:] == [Kind.LEASED, Kind.INTERRUPTED, Kind.LEASED, Kind.PAUSED]
    assert '"by":"person:7"' in said[-1][1]
    assert not any("plain" in body or "other" in body for _, body in said)
    assert voiding.bound(tenant_id()) == []
