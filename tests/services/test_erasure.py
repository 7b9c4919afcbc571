"""Erasure: what a job or a tenant said is gone from every column, receipts still verify, and late workers change
nothing (B37, B38, E13)."""

from __future__ import annotations

import io
import threading
import uuid
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, models, transaction

from jobs.conf import registry
from jobs.errors import JobsError
from jobs.models import (
    Artifact,
    AttemptLog,
    BulkOperation,
    ClaimLine,
    ClaimRequest,
    Command,
    DeadLetter,
    Erasure,
    Job,
    Key,
    Limits,
    Owner,
    Receipt,
    Target,
    Tenant,
)
from jobs.outcomes import Completed, Failed
from jobs.services import (
    assignments,
    attempt_logs,
    cancellation,
    commands,
    continuing,
    dead_letters,
    erasure,
    explain,
    intake,
    keys,
    operations,
    progress,
    reconciling,
    settlement,
    tenancy,
)
from jobs.services.assignments import Claimed
from jobs.services.erasure import Erasures
from jobs.states import State
from jobs.store import erase, redact
from jobs.store.matching import Match
from jobs.worker.context import Run
from jobs.worker.executor import run_sync
from jobs.worker.results import PUBLISHED
from tests import database as db
from tests.database import own_connection
from tests.driver import Driver, check, done, refused
from tests.making import default_workspace, limit, statements, tenant_id
from tests.owned import put
from tests.store import noise
from tests.worker.processes import until

WORD = "marie-curie"
BY = {"by": "user:eraser", "reason": "request 17"}


def of(subject: str = "acme") -> Tenant:
    """A tenant of the default workspace, made if missing."""
    return tenancy.tenant(default_workspace(), subject, make=True)


def code(refusal: pytest.ExceptionInfo[JobsError]) -> str:
    """Its stable word."""
    return refusal.value.reason_code


def where(word: str) -> dict[str, int]:
    """In which tables of ours a word stands, in whatever column."""
    found = {}
    for table, in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'jobs\\_%'"):
        if n := db.rows(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", f"%{word}%")[0][0]:
            found[table] = n
    return found


def wordy(driver: Driver, *, fail: bool = False, subject: str = "acme", **options: Any) -> str:
    """An ended job that says the word wherever a caller can say it."""
    options = {"job_id": WORD, "idempotency_key": WORD, "session_key": WORD, "exclusive_group": WORD, "target": WORD,
               "agent": WORD} | options
    job_id = intake.enqueue("echo", {"value": WORD}, tenant=subject, **options).id
    Job.objects.filter(pk=job_id).update(worker_group="default", subject=WORD)
    ClaimLine.objects.update(worker_group="default")
    held = driver.claim_one()
    assert held.id == job_id
    progress.checkpoint(job_id, held.fence, 1, {"so far": WORD}, driver.claimer.by)
    Command.objects.create(job_id=job_id, kind="steer", payload=f'"{WORD}"', payload_hash=b"0", by="user:test",
                           reason=WORD, idempotency_key=f"{WORD}:{job_id}", external_id=f"{WORD}:{job_id}",
                           tenant_id=held.tenant_id)
    db.rows("UPDATE jobs_attempt SET owner_binding = %s WHERE id = %s RETURNING 1", WORD, held.fence)
    attempt_logs.keep([(held.fence, f"hello {WORD}", 0)])
    driver.settle(held, Failed("it_broke", f"no {WORD}", False) if fail else done({"answer": WORD}))
    return job_id


def carry_on(pk: int | None = None, rounds: int = 200) -> None:
    """Carry erasures on to their end, passing the time for which they wait."""
    duty = Erasures()
    for _ in range(rounds):
        if not duty.tick():
            if not Erasure.objects.filter(ended_at=None).exists():
                return
            db.pass_time(30)
    raise AssertionError("an erasure does not end")


# --- one job ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", [False, True])
def test_a_redacted_job_says_nothing_any_more_and_its_chain_verifies(driver: Driver, fail: bool) -> None:
    """E13: no column of any table holds a caller's word; state, hashes and receipts are as they were."""
    job_id = wordy(driver, fail=fail)
    before = driver.job(job_id)
    assert where(WORD).keys() >= {"jobs_job", "jobs_attempt", "jobs_attempt_log", "jobs_command", "jobs_target",
                                  "jobs_dead_letter" if fail else "jobs_artifact"}
    answer = erasure.redact_job(job_id, **BY)
    assert not answer.repeated
    assert where(WORD) == {}
    after = driver.job(job_id)
    for name in ("state", "input_hash", "fingerprint", "checkpoint_hash", "checkpoint_number", "revision", "claims"):
        assert getattr(after, name) == getattr(before, name), name
    view = check(job_id)
    assert view.number == answer.number == before.number + 1
    last = Receipt.objects.filter(job_id=job_id).latest("number")
    assert last.kind == "job.redacted"
    assert explain.story(after).broken is None
    assert bytes(before.input_hash).hex() in last.body
    assert WORD not in last.body
    if not fail:
        assert Artifact.objects.get(job_id=job_id).value == ""


def test_redacting_twice_writes_once(driver: Driver) -> None:
    """E13: a repeat is a quiet yes."""
    job_id = wordy(driver)
    first = erasure.redact_job(job_id, **BY)
    again = erasure.redact_job(job_id, **BY)
    assert (again.repeated, again.number) == (True, first.number)
    assert Receipt.objects.filter(job_id=job_id, kind="job.redacted").count() == 1


def test_a_job_that_has_not_ended_is_not_redacted(driver: Driver) -> None:
    """E13: what runs needs its input; cancelled first it can be."""
    waiting, held = driver.enqueue(input_={"value": WORD}), driver.enqueue(input_={"value": WORD})
    driver.start(driver.claim_one())
    for job_id in (waiting, held):
        with pytest.raises(erasure.JobActive) as refusal:
            erasure.redact_job(job_id, **BY)
        assert code(refusal) == "job_active"
        check(job_id)
    answers = erasure.redact_many([waiting, "nope", str(uuid.uuid4())], **BY)
    assert [a.reason_code for a in answers] == ["job_active", "job_not_found", "job_not_found"]
    driver.cancel(held)
    erasure.redact_job(held, **BY)
    assert driver.job(held).input == ""
    with pytest.raises(JobsError) as refusal:
        erasure.redact_job(held, by="user:eraser", reason="")
    assert code(refusal) == "invalid_reason"


def test_a_redacted_job_is_requeued_with_a_new_input_only(driver: Driver) -> None:
    """E13, C27: the old one is gone."""
    job_id = wordy(driver, fail=True, target=None)
    erasure.redact_job(job_id, **BY)
    with pytest.raises(dead_letters.InputRedacted):
        driver.requeue(job_id)
    letter = DeadLetter.objects.get(job_id=job_id)
    assert letter.error == ""
    dead_letters.requeue(letter, by="user:test", input={"value": "somebody else"})
    check(job_id)
    again = driver.claim_one()
    assert (again.input, again.checkpoint, again.checkpoint_number) == ('{"path":"","value":"somebody else"}', None, 1)
    driver.complete(again)


def test_a_redacted_job_of_a_target_never_runs_again(driver: Driver) -> None:
    """E14.6: nobody knows any more whether a newer request has taken its place."""
    job_id = wordy(driver, fail=True)
    erasure.redact_job(job_id, **BY)
    letter = DeadLetter.objects.get(job_id=job_id)
    with pytest.raises(dead_letters.TargetSuperseded):
        dead_letters.requeue(letter, by="user:test", input={"value": "somebody else"})
    check(job_id)


def test_a_target_keeps_its_name_while_other_jobs_are_about_it(driver: Driver) -> None:
    """E13, E14.6: it goes with the last of them; a generation never falls meanwhile."""
    first = wordy(driver)
    second = driver.enqueue(target=WORD, tenant="acme")
    erasure.redact_job(first, **BY)
    assert driver.job(first).target is None
    assert driver.job(second).target.key == f"echo:{WORD}"
    assert driver.job(second).generation == 2


def test_a_known_agent_is_the_sites_own_word(driver: Driver, settings: Any) -> None:
    """E13: it routes a requeued job."""
    settings.JOBS = {**settings.JOBS, "AGENTS": ["writer"]}
    job_id = driver.enqueue(agent="writer")
    driver.cancel(job_id)
    erasure.redact_job(job_id, **BY)
    assert driver.job(job_id).agent == "writer"


def test_lines_that_come_late_find_their_place_taken(driver: Driver) -> None:
    """E13, A64: a frozen worker that wakes after the redaction brings nothing back."""
    job_id = driver.enqueue()
    held = driver.claim_one()
    driver.complete(held)
    erasure.redact_job(job_id, **BY)
    attempt_logs.keep([(held.fence, f"late {WORD}", 0)])
    assert where(WORD) == {}
    assert attempt_logs.of(driver.job(job_id)) is None


@pytest.mark.parametrize("many", [False, True], ids=["one", "a batch"])
def test_an_enqueue_that_waits_for_the_redaction_of_its_target_begins_another(driver: Driver, many: bool) -> None:
    """B16, E13: the name is gone when its turn comes; the request is served, and is the first of a new target."""
    job_id = driver.enqueue("echo", target=WORD)
    driver.cancel(job_id)
    old = Job.objects.get(pk=job_id).target_id
    made: list[str] = []

    def ask() -> None:
        options = intake.Options(target=WORD)
        with own_connection():
            made.extend(e.id for e in intake.enqueue_many([intake.Request("echo", {}, options)] * (1 + many)))

    with transaction.atomic():
        assert not redact.lock([job_id])[job_id].redacted
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        until(lambda: db.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                              " AND wait_event_type = 'Lock'"))
        erasure.redact_job(job_id, **BY)
    thread.join(30)
    job = Job.objects.get(pk=made[-1])
    assert (job.generation, job.state) == (1 + many, "queued")
    assert job.target_id != old
    for id_ in made:
        check(id_)


def test_a_late_settle_of_a_redacted_job_changes_nothing(driver: Driver) -> None:
    """E14.21, E13: the fence of a claim that was cancelled is stale."""
    job_id = driver.enqueue()
    held = driver.claim_one()
    driver.cancel(job_id)
    erasure.redact_job(job_id, **BY)
    before = db.row_hash(job_id)
    refused(settlement.settle([settlement.Report(job_id, held.fence, done(WORD))], driver.claimer.by)[0], "stale_claim")
    with pytest.raises(JobsError):
        progress.checkpoint(job_id, held.fence, 1, {"so far": WORD}, driver.claimer.by)
    assert db.row_hash(job_id) == before
    assert where(WORD) == {}


def test_nobody_but_the_eraser_empties_an_artifact(driver: Driver) -> None:
    """E14.17, E14.20, E13: the triggers refuse again right after it."""
    job_id = wordy(driver)
    erasure.redact_job(job_id, **BY)
    for sql in ("UPDATE jobs_artifact SET value = 'x'", "DELETE FROM jobs_receipt", "DELETE FROM jobs_artifact",
                "UPDATE jobs_receipt SET body = '{}'"):
        with pytest.raises(Exception, match="written once"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)


def test_every_text_column_is_either_emptied_or_known_to_be_ours() -> None:
    """E13: "every column that holds a caller's words is covered": a new column must be decided here."""
    emptied = {(table, name) for table, columns in redact.COLUMNS.items() for name in columns}
    emptied |= {("jobs_attempt_log", "lines"), ("jobs_target", "key")}
    tables = {m._meta.db_table: m for m in _models()}
    for table in ("jobs_job", *erase.BY_JOB, "jobs_target"):
        for field in tables[table]._meta.concrete_fields:
            if isinstance(field, (models.CharField, models.TextField, models.JSONField)) or _is_list(field):
                named = (table, field.column)
                assert (named in emptied) != (field.column in OURS.get(table, ())), f"decide about {named}"
    assert all(name in {f.column for f in tables[table]._meta.concrete_fields} for table, name in emptied)


# Never a caller's free words: the site's names, codes and tokens, and what people gave as reasons, which receipts hold.
OURS = {
    "jobs_job": {"type", "queue", "worker_group", "origin", "singleton", "state", "reason", "gate", "retry_on",
                 "duration_scope", "credential", "progress"},
    "jobs_delivery": {"event", "job_state", "reason", "state", "code"},
    "jobs_delivery_try": {"code"},
    "jobs_attempt": {"outcome", "reason_code"},
    "jobs_command": {"kind", "by"},
    "jobs_receipt": {"kind", "body"},
    "jobs_dead_letter": {"type", "reason", "reason_code", "resolution", "resolved_by", "resolve_reason",
                         "actor_kind", "actor_ref"},
    "jobs_bulk_item": {"outcome"},
}


def test_a_caller_that_redacts_in_its_transaction_can_erase_nothing_else_in_it(driver: Driver) -> None:
    """E13, E14.17, E14.20: the triggers stand again with the answer, and not only with the commit."""
    job_id, other = driver.enqueue(), driver.enqueue()
    driver.cancel(job_id)
    with transaction.atomic():
        erasure.redact_job(job_id, **BY)
        with pytest.raises(DatabaseError, match="refused"), transaction.atomic():
            db.rows("DELETE FROM jobs_receipt WHERE job_id = %s RETURNING 1", other)
    check(job_id)
    check(other)


def _models() -> list[type[models.Model]]:
    from django.apps import apps

    return [m for m in apps.get_models() if m._meta.app_label in ("jobs", "lanes")]


def _is_list(field: Any) -> bool:
    return isinstance(getattr(field, "base_field", None), (models.CharField, models.TextField))


def test_every_table_with_a_way_to_a_tenant_goes_with_it() -> None:
    """B38, E13: a new table that names a job, an attempt or a tenant must be named by the eraser."""
    kept = {"jobs_erasure": "it says that the tenant is gone, and never its subject",
            "lanes_job": "an id alone: jobs do not know lanes (D6), and a lane tells how many of its jobs are gone"}
    gone = {"jobs_job", "jobs_tenant", *erase.BY_JOB, *erase.OF_TENANT}
    for model in _models():
        columns = {f.column for f in model._meta.concrete_fields}
        table = model._meta.db_table
        if columns & {"tenant_id", "job_id"} or ("attempt_id" in columns):
            assert (table in gone) != (table in kept), f"the eraser must name {table}"


# --- archive and restore ----------------------------------------------------------------------------------------------


def test_an_archived_tenant_takes_no_new_jobs_and_finishes_those_it_has(driver: Driver) -> None:
    """B37: new scheduling stops, admitted jobs do not; restored it takes jobs again."""
    job_id = driver.enqueue(tenant="acme")
    assert tenancy.archive(of(), **BY) is True
    assert tenancy.archive(of(), **BY) is False
    kept = of()
    assert (kept.archived_by, kept.archive_reason) == ("user:eraser", "request 17")
    with pytest.raises(JobsError) as refusal:
        intake.enqueue("echo", {}, tenant="acme")
    assert code(refusal) == "tenant_archived"
    held = driver.claim_one()
    driver.fail(held)
    db.pass_time(600)
    driver.pass_time(0)
    driver.complete(driver.claim_one())
    assert driver.state(job_id) == "completed"
    assert tenancy.restore(of(), by="user:eraser") is True
    assert tenancy.restore(of(), by="user:eraser") is False
    assert of().archived_by is None
    driver.enqueue(tenant="acme")


def test_the_houses_own_tenant_is_neither_archived_nor_deleted(driver: Driver) -> None:
    """B37, B38: every workspace needs it."""
    house = tenancy.tenant(default_workspace(), None)
    for verb in (lambda: tenancy.archive(house, **BY), lambda: tenancy.restore(house, by="x"),
                 lambda: erasure.delete(house, **BY), lambda: erasure.redact_tenant(house, **BY)):
        with pytest.raises(tenancy.SystemTenant):
            verb()


def test_a_caller_cannot_cancel_for_an_archived_tenant_and_an_operator_can(driver: Driver) -> None:
    """B37: cancel is refused unless it is allowed."""
    job_id, over = driver.enqueue(tenant="acme"), driver.enqueue(tenant="acme")
    driver.cancel(over)
    tenancy.archive(of(), **BY)
    with pytest.raises(JobsError) as refusal:
        driver.cancel(job_id)
    assert code(refusal) == "tenant_archived"
    assert driver.cancel(over).repeated
    answers = cancellation.cancel_many([job_id, str(uuid.uuid4())], by="user:test")
    assert [a.reason_code for a in answers] == ["tenant_archived", "job_not_found"]
    driver.cancel(job_id, allow_archived=True)
    assert driver.state(job_id) == "cancelled"


@pytest.fixture
def kept(settings: Any) -> None:
    """The definitions of these tests."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.services.kept"]}


def ran(driver: Driver, job: Claimed) -> Any:
    """What became of an attempt that ran here."""
    definition = registry().exact(job.type, job.version)
    return run_sync(definition, job, Run(job, definition, driver.claimer.by), driver.claimer.by)


def test_a_continuation_of_an_archived_tenants_work_passes(driver: Driver, kept: None) -> None:
    """B37, E3: a handler's own enqueue for its tenant, and that of a definition that is told; nothing else."""
    for subject in ("acme", "other"):
        driver.enqueue("continues", {"tenant": "acme"}, tenant=subject)
    told = driver.enqueue("carried-on", tenant="acme")
    tenancy.archive(of(), **BY)
    mine, foreign, ends = sorted(driver.claim(3), key=lambda job: job.id)
    assert isinstance(ran(driver, mine), Completed)
    assert Job.objects.filter(type="echo", tenant=of()).count() == 1
    assert ran(driver, foreign).code == "tenant_archived"
    driver.complete(ends)
    reconciling.job_ended(None, uuid.UUID(told), 1, State.COMPLETED)
    assert Job.objects.filter(type="echo", tenant=of()).count() == 2
    with pytest.raises(JobsError) as refusal:
        intake.enqueue("echo", {}, tenant="acme")
    assert code(refusal) == "tenant_archived"
    erasure.delete(of(), **BY)
    with continuing.telling(of().pk), pytest.raises(tenancy.TenantDeleting):
        intake.enqueue("echo", {}, tenant="acme")


def test_nothing_is_published_for_an_archived_tenant(driver: Driver, kept: None) -> None:
    """B37: publication looks again whether the tenant is active; restored, the next attempt publishes."""
    job_id = driver.enqueue("publishes", tenant="acme")
    tenancy.archive(of(), **BY)
    held = driver.claim_one()
    outcome = ran(driver, held)
    assert (outcome.code, outcome.retryable) == ("tenant_archived", True)
    assert driver.state(job_id) == "leased"
    driver.settle(held, outcome)
    tenancy.restore(of(), by="user:x")
    driver.pass_time(600)
    assert ran(driver, driver.claim_one()) is PUBLISHED
    assert driver.state(job_id) == "completed"
    check(job_id)


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_whoever_wants_to_be_told_of_ends_is_waited_for(driver: Driver, kept: None) -> None:
    """B34, B38: for a while; then the jobs that would tell go too, with what they say."""
    driver.enqueue("carried-on", tenant="acme")
    begun = erasure.delete(of(), **BY)
    duty = Erasures()
    for _ in range(20):
        if not duty.tick():
            db.pass_time(erasure.LATECOMERS_S)
    begun.refresh_from_db()
    assert (begun.phase, begun.ended) == ("erasing", False)
    assert Job.objects.filter(type="job-ended").count() == 1
    db.pass_time(erasure.TELLING_S + 1)
    carry_on()
    begun.refresh_from_db()
    assert begun.end == "finished"
    assert Job.objects.count() == Receipt.objects.count() == 0


def test_a_deleted_tenant_is_gone_from_every_table_and_nobody_else_is(driver: Driver) -> None:
    """B38: claims stop, what runs is cancelled, what waits too, then everything goes; others lose nothing."""
    wordy(driver)
    wordy(driver, fail=True, job_id="second", idempotency_key="second", target="second")
    tenant = of()
    other = driver.enqueue(tenant="other", target="mine")
    running = driver.enqueue(tenant="acme", input_={"value": WORD})
    held = driver.claim(2)
    waiting = [driver.enqueue(tenant="acme", input_={"value": WORD}) for _ in range(3)]
    limit(tenant="acme", tenant_concurrency=5)
    keys.make(default_workspace(), "theirs", ["read"], tenant=tenant)
    BulkOperation.objects.create(token=uuid.uuid4(), verb="discard", by="x", reason="x", tenant_id=tenant.pk, upto=1,
                              expected=1)
    begun = erasure.delete(tenant, by="user:eraser", reason="they have left")
    with pytest.raises(tenancy.TenantDeleting) as refusal:
        intake.enqueue("echo", {}, tenant="acme")
    assert code(refusal) == "tenant_deleting"
    assert [job.tenant_id for job in driver.claim(10)] == []
    assert explain.story(driver.job(waiting[0])).reason.code == "tenant_deleting"
    carry_on()
    begun.refresh_from_db()
    assert begun.end == "finished"
    assert begun.counts["jobs_job"] == 6
    assert begun.counts["cancelled"] == 4
    assert begun.counts["jobs_tenant"] == begun.counts["jobs_limits"] == begun.counts["jobs_key"] == 1
    assert where(WORD) == {}
    assert where("acme") == {}
    for table, column in db.rows("SELECT table_name, column_name FROM information_schema.columns"
                                 " WHERE table_name LIKE 'jobs\\_%%' AND column_name = 'tenant_id'"):
        if table != "jobs_erasure":
            assert db.rows(f"SELECT count(*) FROM {table} WHERE {column} = %s", tenant.pk)[0][0] == 0, table
    assert Receipt.objects.exclude(job_id=other).count() == 0
    assert Limits.objects.count() == Key.objects.count() == BulkOperation.objects.count() == 0
    assert [t.key for t in Target.objects.all()] == ["echo:mine"]
    check(other)
    mine = next(job for job in held if job.id == other)
    driver.complete(mine)
    assert running not in (other, *waiting)
    driver.enqueue(tenant="acme")


def test_a_worker_that_wakes_after_the_deletion_changes_nothing(driver: Driver) -> None:
    """E14.21, B38: settle, heartbeat, checkpoint and log lines of a job that is gone."""
    job_id = driver.enqueue(tenant="acme")
    held = driver.claim_one()
    erasure.delete(of(), **BY)
    carry_on()
    assert not Job.objects.filter(pk=job_id).exists()
    late = settlement.settle([settlement.Report(job_id, held.fence, done(WORD))], driver.claimer.by)[0]
    refused(late, "job_not_found")
    refused(settlement.settle([settlement.Report(job_id, held.fence, Failed("it_broke", WORD))], "worker:x")[0],
            "job_not_found")
    assert assignments.extend([held.fence]) == {}
    with pytest.raises(JobsError):
        progress.checkpoint(job_id, held.fence, 1, {"so far": WORD}, driver.claimer.by)
    attempt_logs.keep([(held.fence, WORD, 0)])
    assert AttemptLog.objects.count() == Artifact.objects.count() == 0
    assert where(WORD) == {}


def test_holders_are_told_before_anything_is_deleted(driver: Driver) -> None:
    """B38: bounded wait: a heartbeat and a little, and only where somebody held a job."""
    job_id = driver.enqueue(tenant="acme")
    held = driver.claim_one()
    begun = erasure.delete(of(), **BY)
    duty = Erasures()
    while duty.tick():
        pass
    begun.refresh_from_db()
    assert begun.phase == "waiting"
    assert driver.state(job_id) == "cancelled"
    assert driver.extend(held) == {}
    assert duty.tick() is False
    db.pass_time(16)
    carry_on(rounds=20)
    begun.refresh_from_db()
    assert begun.end == "finished"


def test_a_deletion_asked_twice_is_one(driver: Driver) -> None:
    """B38: idempotent; a redaction of the same tenant gives way to it."""
    driver.enqueue(tenant="acme")
    soft = erasure.redact_tenant(of(), **BY)
    assert erasure.redact_tenant(of(), **BY).pk == soft.pk
    first = erasure.delete(of(), **BY)
    assert erasure.delete(of(), **BY).pk == first.pk
    soft.refresh_from_db()
    assert soft.end == "overtaken"
    for verb in (lambda: erasure.redact_tenant(of(), **BY), lambda: tenancy.archive(of(), **BY),
                 lambda: tenancy.restore(of(), by="x")):
        with pytest.raises(tenancy.TenantDeleting):
            verb()


def test_what_the_site_says_blocks_a_deletion(driver: Driver, settings: Any) -> None:
    """B38: blocked when published links exist; the reasons are the site's."""
    settings.JOBS = {**settings.JOBS, "BLOCKS_DELETION": ["tests.services.kept.published_links"]}
    tenant = of("published")
    with pytest.raises(erasure.DeletionBlocked) as refusal:
        erasure.delete(tenant, **BY)
    assert code(refusal) == "deletion_blocked"
    assert "2 published links" in refusal.value.message
    assert erasure.foresee(tenant).blocked == ["2 published links of published"]
    assert Tenant.objects.get(pk=tenant.pk).deleting_at is None
    erasure.delete(of("acme"), **BY)


def test_jobs_that_something_of_the_sites_refers_to_stay_and_the_others_go(driver: Driver) -> None:
    """B38: one row that cannot go holds up nobody; it says so."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE keeps (job uuid REFERENCES jobs_job DEFERRABLE INITIALLY DEFERRED)")
    try:
        ids = [driver.enqueue(tenant="acme") for _ in range(20)]
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO keeps VALUES (%s)", [ids[7]])
        begun = erasure.delete(of(), **BY)
        carry_on()
        begun.refresh_from_db()
        assert begun.end == "referenced"
        assert [str(pk) for pk in Job.objects.values_list("pk", flat=True)] == [ids[7]]
        check(ids[7])
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM keeps")
        again = erasure.delete(of(), **BY)
        carry_on()
        again.refresh_from_db()
        assert again.end == "finished"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE keeps")


def test_a_job_that_slips_in_while_its_tenant_goes_is_deleted_too(driver: Driver) -> None:
    """B38: a transaction that was open all the time; a job without a tenant never is."""
    tenant = of()
    entered, may_commit = threading.Event(), threading.Event()

    def slow() -> None:
        with db.own_connection(), transaction.atomic():
            intake.enqueue("echo", {}, tenant="acme")
            entered.set()
            may_commit.wait(20)

    thread = threading.Thread(target=slow)
    thread.start()
    assert entered.wait(20)
    begun = erasure.delete(tenant, **BY)
    duty = Erasures()
    while Erasure.objects.get(pk=begun.pk).phase != "erasing":
        duty.tick()
    may_commit.set()
    thread.join(20)
    carry_on()
    begun.refresh_from_db()
    assert (begun.end, begun.counts["jobs_job"]) == ("finished", 1)
    assert Job.objects.count() == 0


def test_who_found_the_tenant_before_it_was_marked_is_served_and_deleted(driver: Driver) -> None:
    """B38: an enqueue of that moment commits; it is not told that what it refers to is gone."""
    driver.enqueue(tenant="acme")
    found, marked, made = threading.Event(), threading.Event(), []

    def ask() -> None:
        with db.own_connection(), transaction.atomic():
            made.append(intake.enqueue("echo", {}, tenant="acme", target="late").id)
            found.set()
            assert marked.wait(30)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert found.wait(30)
    begun, duty = erasure.delete(of(), **BY), Erasures()
    while duty.tick():
        pass
    marked.set()
    thread.join(30)
    check(made[0])
    carry_on()
    begun.refresh_from_db()
    assert (begun.end, begun.counts["jobs_job"]) == ("finished", 2)


def test_two_processes_that_carry_one_on_delete_each_row_once(driver: Driver, monkeypatch) -> None:
    """B38: the batch is one process's; the counts are exact."""
    monkeypatch.setattr(erasure, "LATECOMERS_S", 0.0)
    for _ in range(30):
        driver.enqueue(tenant="acme")
    begun = erasure.delete(of(), **BY)

    def work() -> None:
        with db.own_connection():
            duty = Erasures()
            for _ in range(60):
                duty.tick(7)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    carry_on()
    begun.refresh_from_db()
    assert (begun.end, begun.counts["jobs_job"], begun.counts["cancelled"]) == ("finished", 30, 30)


# --- by subject -------------------------------------------------------------------------------------------------------


def test_a_tenant_is_redacted_and_its_active_jobs_go_on(driver: Driver) -> None:
    """E13: erasure by subject: ended jobs keep their receipts and say nothing."""
    gone = wordy(driver)
    broken = wordy(driver, fail=True, job_id="two", idempotency_key="two")
    active = driver.enqueue(tenant="acme", input_={"value": "still"}, target="still")
    begun = erasure.redact_tenant(of(), **BY)
    carry_on()
    begun.refresh_from_db()
    assert (begun.end, begun.counts) == ("finished", {"jobs_job": 2, "jobs_target": 1})
    assert where(WORD) == {}
    for job_id in (gone, broken, active):
        check(job_id)
    assert driver.job(active).target.key == "echo:still"
    driver.complete(driver.claim_one())
    driver.enqueue(tenant="acme", target=WORD)


def test_a_dry_run_says_what_would_go_and_changes_nothing(driver: Driver) -> None:
    """E13: counts by table, capped, ids, what is active."""
    wordy(driver)
    ids = [driver.enqueue(tenant="acme") for _ in range(7)]
    driver.enqueue(tenant="other")
    before = {table: db.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("jobs_job", "jobs_receipt")}
    seen = erasure.foresee(of())
    assert (seen.counts["jobs_job"], seen.counts["jobs_attempt"], seen.counts["jobs_artifact"]) == (8, 1, 1)
    assert (seen.counts["jobs_target"], seen.counts["jobs_command"], seen.active) == (1, 1, 7)
    assert seen.sample == ids[::-1][:5]
    assert seen.blocked == []
    assert erasure.foresee(of(), most=3).counts["jobs_job"] == 4
    assert before == {table: db.rows(f"SELECT count(*) FROM {table}")[0][0] for table in before}
    assert of().deleting_at is None


def test_a_batch_reads_its_tenants_jobs_and_nothing_else(driver: Driver, monkeypatch) -> None:
    """B38: by an index, a batch at a time, whatever others have: 80,000 jobs of theirs and 3,000 of its own."""
    place, mine = default_workspace().pk, tenant_id("acme")
    others = noise.tenants(50, place, "other")
    noise.jobs(80_000, place, f"{others} + n % 50")
    noise.jobs(3_000, place, mine, state="completed", ended="jobs_now()")
    noise.jobs(100, place, mine)
    noise.execute("ANALYZE jobs_job, jobs_attempt, jobs_receipt, jobs_dead_letter")
    monkeypatch.setattr(erasure, "LATECOMERS_S", 0.0)
    begun = erasure.delete(of(), **BY)
    duty = Erasures()
    with statements() as seen:
        assert erasure.foresee(of(), most=10_000).counts["jobs_job"] == 3_100
    plans = {scan for sql, params in seen if "jobs_job" in sql
             for scan in noise.scans(tuple(noise._walk(noise._explain(sql, params))), "jobs_job")}
    while not begun.ended:
        with statements() as seen:
            duty.carry_on(begun.pk)
        for sql, params in seen:
            if "jobs_job" in sql:
                plans |= noise.scans(tuple(noise._walk(noise._explain(sql, params))), "jobs_job")
        begun.refresh_from_db()
    assert "Seq Scan" not in {kind for kind, _ in plans}
    assert ("Index Scan", "job_by_tenant") in plans
    assert (begun.end, begun.counts["jobs_job"]) == ("finished", 3_100)
    assert Job.objects.count() == 80_000


# --- everything that somebody may say, by the doors by which it is said ----------------------------------------------


def everywhere(word: str) -> dict[str, int]:
    """In which tables, the framework's too, a word stands as text or as bytes."""
    found = {}
    for (table,) in db.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        if n := db.rows(f"SELECT count(*) FROM {table} t WHERE t::text ILIKE %s OR t::text LIKE %s", f"%{word}%",
                        f"%{word.encode().hex()}%")[0][0]:
            found[table] = n
    return found


@pytest.fixture
def talkative(driver: Driver, owned_site: None) -> Driver:
    """A tenant whose callers, runners and operators have said the word by every door that takes one."""
    put("vault/" + WORD, tenant=WORD, label=WORD)
    said = {"tenant": WORD, "idempotency_key": WORD, "job_id": WORD, "session_key": WORD, "exclusive_group": WORD,
            "target": WORD}
    first = intake.enqueue("echo", {"value": WORD}, **said).id
    held = driver.claim_one()
    intake.enqueue("echo", {"value": f"{WORD} again"}, tenant=WORD, session_key=WORD, singleton="steer",
                   idempotency_key=f"{WORD}-2")
    commands.follow_up(first, {WORD: [WORD]}, by="user:test", idempotency_key=f"{WORD}-3")
    commands.consume(first, held.fence, [c.id for c in commands.unread([first])[first]], driver.claimer.by)
    progress.checkpoint(first, held.fence, 1, {WORD: WORD}, driver.claimer.by)
    attempt_logs.keep([(held.fence, WORD, 0)])
    driver.complete(held, {"answer": WORD})
    # One that fails, is answered with another input, and fails again; keys that a caller made up are words too.
    again = intake.enqueue("outside", {WORD: {WORD: 1}}, tenant=WORD).id
    for table in ("jobs_job", "jobs_claim_line"):
        db.rows(f"UPDATE {table} SET worker_group = 'default' RETURNING 1")
    driver.settle(driver.claim_one(), Failed("it_broke", f"no {WORD}", False))
    dead_letters.requeue(DeadLetter.objects.get(job_id=again), by="user:test", input={WORD: {WORD: 2}, "b": WORD})
    driver.settle(driver.claim_one(), Failed("it_broke", f"no {WORD}", False))
    dead_letters.discard(DeadLetter.objects.get(job_id=again, resolved_at=None), by="user:test")
    # One whose stored input no longer reads.
    spoilt = intake.enqueue("echo", {"value": WORD}, tenant=WORD).id
    held = driver.claim_one()
    settlement.spoil(spoilt, held.fence, f"/{WORD}: is no field here", driver.claimer.by)
    # One under the owner, cancelled while it waits behind it.
    owned = intake.enqueue("owned", {"path": WORD}, tenant=WORD).id
    driver.claim_one()
    cancellation.cancel(owned, by="user:test")
    operations.begin("discard", Match(tenant_id=of(WORD).pk), by="user:test", reason="r", token=uuid.uuid4())
    key, _ = keys.make(default_workspace(), WORD, ["read"], tenant=of(WORD))
    ClaimRequest.objects.bulk_create([ClaimRequest(key=key, request_id=f"{WORD}-{n}", fingerprint=b"", attempts=[])
                                      for n in range(erase.BATCH + 1)])
    return driver


def test_after_redaction_nothing_that_was_said_is_in_any_column_of_any_table(talkative: Driver) -> None:
    """E13: by every door, and the history still verifies; the tenant's own names, keys and owners stay with it."""
    for job in Job.objects.filter(tenant_id=of(WORD).pk):
        erasure.redact_job(job.pk, **BY)
    assert everywhere(WORD).keys() <= {"jobs_tenant", "jobs_owner", "jobs_key", "jobs_claim_request"}
    call_command("verify", "--strict", stdout=io.StringIO())


def test_after_a_deletion_nothing_of_a_tenant_is_in_any_table(talkative: Driver) -> None:
    """B38: not in the framework's tables either, in which the admin keeps who did what to what."""
    owner = Owner.objects.get()
    admin = User.objects.create_superuser(f"admin-{uuid.uuid4()}")
    LogEntry.objects.log_actions(admin.pk, Owner.objects.all(), CHANGE, "Rotated: x", single_object=False)
    erasure.delete(of(WORD), **BY)
    carry_on()
    assert everywhere(WORD) == {}
    assert LogEntry.objects.get(user=admin).object_repr == f"owner {owner.pk}"
    call_command("verify", "--strict", stdout=io.StringIO())
