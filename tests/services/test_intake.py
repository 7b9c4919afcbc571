"""Enqueue in E3's order: repeats, keys, targets, batches, and the caller's transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from jobs import clock
from jobs.errors import Invalid, JobsError, Refused
from jobs.models import ClaimLine, Job, Receipt, Target, Tenant
from jobs.registry import SITE, Definition
from jobs.services import intake, tenancy
from jobs.services.intake import Options, Request
from jobs.states import State
from jobs.store import lookup
from tests import database as db
from tests.driver import Driver, check, refused
from tests.making import archive, in_state, statements
from tests.races.threads import together
from tests.store import noise


def code(refusal: pytest.ExceptionInfo[JobsError]) -> str:
    return refusal.value.reason_code


def counts() -> tuple[int, ...]:
    """How much is stored of everything that an enqueue writes."""
    return tuple(m.objects.count() for m in (Job, Receipt, Target, Tenant, ClaimLine))


def test_an_enqueue_is_a_receipt_and_a_claimable_row(driver: Driver) -> None:
    """A2, A4: default queue collect, origin stamped by the door."""
    job = driver.job(driver.enqueue("echo", {"value": "x"}))
    assert (job.state, job.queue, job.worker_group, job.origin, job.priority) == (
        "queued",
        "collect",
        "default",
        "user",
        0,
    )
    assert (job.claims, job.chain, job.max_attempts, job.base_delay_ms, job.max_delay_ms) == (0, 1, 5, 5_000, 300_000)


def test_an_idempotency_key_with_the_same_request_is_the_same_job(driver: Driver) -> None:
    """C3, E6, E14.5: repeated, and nothing is written."""
    first = intake.enqueue("echo", {"value": "x"}, idempotency_key="k", priority=3)
    before = (db.row_hash(first.id), counts())
    again = intake.enqueue("echo", {"value": "x"}, idempotency_key="k", priority=3)
    assert (first.repeated, again.repeated, again.id) == (False, True, first.id)
    assert (db.row_hash(first.id), counts()) == before


@pytest.mark.parametrize(("type_", "input_"), [
    ("echo", {"value": "y"}), ("echo-thread", {"value": "x"}), ("echo", {"value": 5}), ("nothing-of-ours", {})])
def test_an_idempotency_key_with_another_request_is_refused(driver: Driver, type_: str, input_: dict[str, Any]) -> None:
    """B15, C3, E6: checked before codecs and registry, so bad input and unknown types are reused keys as well."""
    driver.enqueue("echo", {"value": "x"}, idempotency_key="k")
    before = counts()
    with pytest.raises(Refused) as refusal:
        driver.enqueue(type_, input_, idempotency_key="k")
    assert (code(refusal), refusal.value.field) == ("idempotency_key_reused", "idempotency_key")
    assert counts() == before


def test_in_process_the_normal_form_decides_too(driver: Driver) -> None:
    """B15, E6: a default that was left out and one that was written are one request; for other doors they are two."""
    first = intake.enqueue("echo", {}, idempotency_key="k")
    assert intake.enqueue("echo", {"value": ""}, idempotency_key="k") == intake.Enqueued(first.id, repeated=True)
    with pytest.raises(Refused):
        intake.enqueue("echo", {"value": ""}, idempotency_key="k", door=intake.Door("http", "user", "key:x"))


@pytest.mark.parametrize("state", State)
def test_a_job_id_that_exists_returns_its_job_whatever_the_payload(driver: Driver, state: State) -> None:
    """A18: never a second job, never disturbs the first, in any state."""
    made = in_state(driver, state, job_id="mine" if state is not State.SUPERSEDED else None)
    if state is State.SUPERSEDED:
        db.rows("UPDATE jobs_job SET external_id = 'mine' WHERE id = %s RETURNING 1", made.id)
    before = (db.row_hash(made.id), counts())
    answer = intake.enqueue("staged", {}, job_id="mine", priority=9, target="other")
    assert (answer.id, answer.repeated) == (made.id, True)
    assert (db.row_hash(made.id), counts()) == before


def test_keys_of_two_jobs_are_a_mismatch(driver: Driver) -> None:
    """E3.1: 409 key_mismatch, and neither is disturbed."""
    ids = [driver.enqueue(job_id="a"), driver.enqueue(idempotency_key="b")]
    before = [db.row_hash(i) for i in ids]
    with pytest.raises(JobsError) as refusal:
        driver.enqueue(job_id="a", idempotency_key="b")
    assert code(refusal) == "key_mismatch"
    assert [db.row_hash(i) for i in ids] == before


def test_keys_and_targets_are_a_tenants_own(driver: Driver) -> None:
    """E2: no tenant can see, hit or supersede another's."""
    words: dict[str, Any] = {"job_id": "a", "idempotency_key": "b", "target": "t"}
    ids = {driver.enqueue("echo", {"value": str(t)}, tenant=t, **words) for t in (None, "x", "y")}
    assert len(ids) == 3
    assert {driver.state(i) for i in ids} == {"queued"}
    assert [t.generation for t in Target.objects.all()] == [1, 1, 1]


@pytest.mark.parametrize("key", ["\\N", " ", "~", 'say "x"', "a,b", "{x}", "x" * 200])
def test_any_printable_key_is_a_key(driver: Driver, key: str) -> None:
    """E2: 1 to 200 printable ASCII, alone and in a batch, with every other word that is free."""
    options = Options(idempotency_key=key, session_key=key, exclusive_group=key)
    requests = [
        Request("echo", {"value": "1"}, options),
        Request("echo", {"value": "2"}, Options(idempotency_key="other")),
    ]
    made = intake.enqueue_many(requests)
    assert [a.id for a in intake.enqueue_many(requests)] == [a.id for a in made]
    assert intake.enqueue("echo", {"value": "1"}, idempotency_key=key, session_key=key, exclusive_group=key).repeated
    job = driver.job(made[0].id)
    assert (job.idempotency_key, job.session_key, job.exclusive_group) == (key, key, key)


# -- the caller's transaction ---------------------------------------------------------------------------------------


def test_a_job_exists_if_and_only_if_the_callers_transaction_commits(driver: Driver) -> None:
    """DESIGN 4: enqueue joins."""
    def undone() -> None:
        with transaction.atomic():
            made.append(intake.enqueue("echo", {}, tenant="new").id)
            raise LookupError

    made: list[str] = []
    with pytest.raises(LookupError):
        undone()
    assert not Job.objects.filter(pk=made[0]).exists()
    with transaction.atomic():
        kept = intake.enqueue("echo", {}, target="t").id
    assert check(kept).state == "queued"


REFUSED: list[tuple[str, Any, dict[str, Any]]] = [
    ("nothing-of-ours", {}, {}), ("echo", {"value": 5}, {}), ("echo", {}, {"queue": "nowhere"}), ("disabled", {}, {}),
    ("echo", {}, {"target": ""}), ("echo", {"value": "b"}, {"idempotency_key": "taken", "tenant": None}),
]


@pytest.mark.parametrize(("type_", "input_", "options"), REFUSED)
def test_a_refusal_leaves_the_callers_transaction_usable_and_nothing_written(
        driver: Driver, type_: str, input_: Any, options: dict[str, Any]) -> None:
    """E3: every refusal comes before the first write, a new tenant and a new target included."""
    driver.enqueue("echo", {"value": "a"}, idempotency_key="taken")
    before = counts()
    with transaction.atomic():
        with pytest.raises(JobsError):
            intake.enqueue(type_, input_, **{"target": "t", "tenant": "new", **options})
        assert counts() == before
        kept = intake.enqueue("echo", {}).id
    assert check(kept).state == "queued"


def test_all_of_a_batch_or_none_of_it(driver: Driver) -> None:
    """E3: also where a later batch is refused, and inside the caller's transaction."""
    driver.enqueue("echo", {"value": "a"}, idempotency_key="taken")
    good = [Request("echo", {"value": str(n)}) for n in range(3)]
    for bad in (Request("echo", {"value": 5}), Request("echo", {"value": "b"}, Options(idempotency_key="taken")),
                Request("echo", {"value": 5}, Options(target="t"))):
        before = counts()
        with transaction.atomic():
            with pytest.raises(JobsError):
                intake.enqueue_many([*good, Request("echo", {}, Options(target="u", tenant="new")), bad])
            assert counts() == before


def test_the_same_key_twice_in_a_batch_is_one_job_or_none(driver: Driver) -> None:
    """E14.5, E6: the same request twice is a repeat; another one takes the whole batch back."""
    same = [Request("echo", {"value": "x"}, Options(idempotency_key="k"))] * 2
    first, again = intake.enqueue_many(same)
    assert (first.id, first.repeated, again.repeated) == (again.id, False, True)
    before = counts()
    with transaction.atomic():
        with pytest.raises(Refused):
            intake.enqueue_many([Request("echo", {"value": v}, Options(idempotency_key="k2")) for v in ("a", "b")])
        assert counts() == before


def test_a_bulk_of_many_jobs_keeps_every_option(driver: Driver) -> None:
    """E3, E6: 2,500 requests with mixed words, targets between them; a repeat of all of them makes nothing."""
    def request(n: int) -> Request:
        return Request("echo", {"value": f"line {n}\nnext"}, Options(
            priority=n % 7 - 3, queue=("chat", "collect", None)[n % 3], tenant=(None, "a", "b")[n % 3],
            job_id=f"j{n}" if n % 5 == 0 else None, idempotency_key=f"k{n}" if n % 4 == 0 else None,
            delay_s=60 if n % 10 == 3 else None, exclusive_group=f"g{n % 2}" if n % 6 == 0 else None,
            target=f"t{n}" if n % 500 == 250 else None, deadline_s=9 if n % 8 == 1 else None,
            retry=None if n % 9 == 0 else SITE))
    requests = [request(n) for n in range(2_500)]
    answers = intake.enqueue_many(requests)
    assert len({a.id for a in answers}) == 2_500 == Job.objects.count() == Receipt.objects.count()
    for n in (0, 3, 20, 250, 999, 1_000, 1_001, 2_499):
        job, asked = driver.job(answers[n].id), requests[n].options
        assert (job.priority, job.queue, job.external_id, job.idempotency_key, job.exclusive_group) == (
            asked.priority, asked.queue or "collect", asked.job_id, asked.idempotency_key, asked.exclusive_group)
        assert (job.max_attempts is None, job.gate, job.deadline_ms) == (
            asked.retry is None, "scheduled" if asked.delay_s else None, 9_000 if asked.deadline_s else None)
        assert f"line {n}\\nnext" in job.input
        assert (job.generation, job.tenant.subject) == (1 if asked.target else None, asked.tenant)
        check(job.pk)
    keyed = [r for r in requests if r.options.job_id or r.options.idempotency_key]
    assert all(a.repeated for a in intake.enqueue_many(keyed))
    assert Job.objects.count() == 2_500


def test_an_enqueue_costs_the_same_few_statements_however_many(driver: Driver) -> None:
    """DESIGN 5: place, buckets, insert; a key adds a look-up."""
    driver.enqueue(tenant="known")
    with statements() as one:
        intake.enqueue("echo", {}, tenant="known")
    with statements() as many:
        intake.enqueue_many([Request("echo", {"value": str(n)}) for n in range(500)])
    assert len(one) <= 3
    assert len(many) <= 3


# -- targets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_a_newer_request_for_a_target_ends_the_active_older_ones(driver: Driver, state: State) -> None:
    """B16, E1: pending, paused, leased and running become superseded; what has ended stays."""
    made = in_state(driver, state, target="doc")
    generation = driver.job(made.id).generation
    newer = driver.job(driver.enqueue(target="doc"))
    active = state in (State.QUEUED, State.LEASED, State.RUNNING, State.PAUSED)
    assert driver.state(made.id) == ("superseded" if active else state)
    assert newer.generation == Target.objects.get().generation > generation
    assert newer.state == "queued"
    check(made.id)


def test_a_superseded_holder_can_commit_nothing(driver: Driver) -> None:
    """B16, B23, E14.6: the claim is void at once."""
    driver.enqueue(target="doc")
    job = driver.claim_one()
    driver.enqueue(target="doc")
    refused(driver.complete(job, "old news"), "stale_claim")
    assert driver.job(job.id).reason == "superseded"


def test_targets_are_scoped_by_type_and_a_prefix_is_stored_doubled_with_a_warning(driver: Driver) -> None:
    """B14, E2, E15."""
    ids = [driver.enqueue("echo", target="x"), driver.enqueue("staged", target="x")]
    answer = intake.enqueue("echo", {}, target="echo:x")
    assert [w["code"] for w in answer.warnings] == ["target_prefixed"]
    assert {t.key for t in Target.objects.all()} == {"echo:x", "staged:x", "echo:echo:x"}
    assert [driver.state(i) for i in ids] == ["queued", "queued"]


def test_a_repeat_supersedes_nothing(driver: Driver) -> None:
    """E3.1: a network retry of a request with a target has no effect."""
    first = driver.enqueue(target="doc", idempotency_key="k")
    second = driver.enqueue(target="doc")
    assert intake.enqueue("echo", {}, target="doc", idempotency_key="k").id == first
    assert (driver.state(second), Target.objects.get().generation) == ("queued", 2)


def test_a_twin_that_takes_the_job_id_first_leaves_the_target_as_it_was(
        driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """E3.2, A18: the insert loses its key after the target has moved on; the supersession is taken back."""
    older = driver.enqueue(target="doc")
    found: list[str] = []

    def twin_comes_first(target_id: int, before: int) -> list[str]:
        found.extend(together([lambda: intake.enqueue("echo", {}, job_id="mine").id]))
        return real(target_id, before)

    real = lookup.active_of_target
    monkeypatch.setattr(lookup, "active_of_target", twin_comes_first)
    answer = intake.enqueue("echo", {}, target="doc", job_id="mine")
    assert answer == intake.Enqueued(found[0], repeated=True)
    assert driver.state(older) == "queued"
    assert Target.objects.get().generation == 1


def test_a_caller_at_repeatable_read_sees_a_serialization_failure(driver: Driver) -> None:
    """E3: on a lost race, and retries its transaction; without a race it works, and its line is opened anyway."""
    def at_repeatable_read(race: bool) -> str:
        with transaction.atomic():
            noise.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            db.rows("SELECT count(*) FROM jobs_job")
            if race:
                together([lambda: intake.enqueue("echo", {}, idempotency_key="k")])
            return intake.enqueue("echo", {}, idempotency_key="k", tenant=None).id

    with pytest.raises(OperationalError, match="could not serialize"):
        at_repeatable_read(race=True)
    driver.cancel(str(Job.objects.get().pk))
    db.rows("UPDATE jobs_job SET idempotency_key = 'old' RETURNING 1")
    job_id = at_repeatable_read(race=False)
    assert driver.claim_one().id == job_id


def test_an_archived_tenant_takes_no_new_jobs_and_still_repeats(driver: Driver) -> None:
    """B37: not even for a new key; admitted jobs stay."""
    job_id = driver.enqueue(tenant="old", idempotency_key="k")
    archive("old")
    with pytest.raises(Refused) as refusal:
        driver.enqueue(tenant="old", idempotency_key="k2")
    assert code(refusal) == "tenant_archived"
    assert intake.enqueue("echo", {}, tenant="old", idempotency_key="k").id == job_id
    assert driver.claim_one().id == job_id


def test_a_definition_given_as_function_or_object_is_its_type(driver: Driver) -> None:
    """DESIGN 6: `enqueue(fn)`, `fn.enqueue(...)` and `using`."""
    from tests.definitions import echo

    assert isinstance(echo.definition, Definition)
    for answer in (intake.enqueue(echo, {"value": "a"}), echo.enqueue(value="a"),
                   echo.using(priority=4, tenant="acme").enqueue(value="a")):
        assert driver.job(answer.id).type == "echo"
    assert driver.job(answer.id).priority == 4


def test_the_door_stamps_the_origin_and_an_origin_opens_no_other_door(driver: Driver) -> None:
    """B13, B43, E15: never supplied by the caller."""
    with pytest.raises(Refused) as refusal:
        driver.enqueue("scheduled-only", {})
    assert code(refusal) == "origin_forbidden"
    job = driver.job(driver.enqueue("scheduled-only", {}, door=intake.TIMER))
    assert job.origin == "scheduler"
    with pytest.raises(Invalid) as unknown:
        driver.enqueue("echo", {}, origin="scheduler")
    assert (code(unknown), unknown.value.field) == ("unknown_field", "origin")


def test_a_workspace_that_is_not_there_is_not_found(driver: Driver) -> None:
    """E2: workspaces are made, tenants come with their first job."""
    for slug in ("nowhere", "a\x00b", 5):
        with pytest.raises(JobsError) as refusal:
            driver.enqueue(workspace=slug)
        assert (code(refusal), refusal.value.field) == ("not_found", "workspace")
    tenancy.make_workspace("there")
    assert driver.job(driver.enqueue(workspace="there", tenant="x")).tenant.subject == "x"


def test_a_deadline_lies_ahead_and_within_the_sites_longest(driver: Driver) -> None:
    """C15."""
    now = clock.now()
    job = driver.job(driver.enqueue(deadline_at=now + timedelta(days=6)))
    assert job.deadline_at == now + timedelta(days=6)
    for wrong in (now - timedelta(seconds=1), now + timedelta(days=8)):
        with pytest.raises(Invalid) as refusal:
            driver.enqueue(deadline_at=wrong)
        assert (code(refusal), refusal.value.field) == ("invalid_deadline", "deadline_at")
