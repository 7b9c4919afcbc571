"""Callbacks from the enqueue to the receiver: events, bodies, signatures, tries, rests and replays (A37, C2, E11)."""

from __future__ import annotations

import pytest
from django.db import transaction
from standardwebhooks import Webhook, WebhookVerificationError

from jobs import redaction
from jobs.callbacks import group
from jobs.conf import registry
from jobs.errors import Invalid, Refused
from jobs.models import CallbackHost, CallbackSecret, DeadLetter, Delivery, DeliveryTry, Job
from jobs.registry import define
from jobs.routing import SYSTEM
from jobs.services import callbacks, deliveries, erasure, intake, retention, signing, tenancy
from jobs.services.draft import Door
from jobs.store.sql import durable
from tests import database as db
from tests.driver import check, done
from tests.making import limit, statements, tenant_id
from tests.services.calling import allowing, claim, run, send, states, url
from tests.services.calling import rows_of as rows
from tests.sinks import Sink, status

ALL = ["dispatched", "completed", "failed", "cancelled"]


@pytest.fixture
def sink(settings):
    with Sink() as sink:
        allowing(settings, sink)
        yield sink


def test_the_end_of_a_job_is_told_once_with_its_result(driver, sink) -> None:
    """A37, C2, E11: written in the transaction of the end, sent after it; null before the end."""
    job_id = driver.enqueue(callback_url=url(sink, "/hook?x=1"), job_id="order-7", tenant="acme")
    assert rows(job_id) == []
    driver.complete(driver.claim_one(), {"total": 3, "api_key": "s3cr3t"})
    assert states(job_id) == [("completed", "pending")]
    assert sink.got == []
    assert send(driver) == 1
    [got] = sink.got
    assert got.line == "POST /hook?x=1 HTTP/1.1"
    assert got.headers["content-type"] == "application/json"
    told = got.told
    job = driver.job(job_id)
    assert (told["type"], told["id"]) == ("job.completed", got.headers["webhook-id"])
    said = told["data"]
    assert said["result_envelope"]["artifact"] == {"total": 3, "api_key": redaction.REDACTED}
    assert (said["id"], said["job_id"], said["tenant_subject"], said["status"], said["revision"], said["chain"]) == (
        job_id, "order-7", "acme", "completed", job.revision, 1)
    assert states(job_id) == [("completed", "delivered")]
    [row] = rows(job_id)
    assert (row.tries, row.http_status, row.code, row.host) == (1, 200, None, "127.0.0.1")
    assert [t.answer for t in DeliveryTry.objects.all()] == ["ok"]
    sender = Job.objects.get(pk=row.sender_id)
    assert (sender.worker_group, sender.tenant_id, sender.callback_url) == (SYSTEM, tenant_id(None), None)


def test_all_four_events_are_told_where_they_are_asked_for(driver, sink) -> None:
    """A37: dispatched at the first claim of a chain and no other; revisions rise."""
    job_id = driver.enqueue(callback_url=url(sink), callback_events=["dispatched", "completed", "canceled"])
    driver.fail(driver.claim_one())
    assert states(job_id) == [("dispatched", "pending")]
    driver.pass_time(60)
    driver.complete(driver.claim_one())
    assert states(job_id) == [("dispatched", "pending"), ("completed", "pending")]
    send(driver)
    assert [(g.told["data"]["status"], g.told["data"]["result_envelope"] is None) for g in sink.got] == [
        ("leased", True), ("completed", False)]
    assert sink.got[0].told["data"]["revision"] < sink.got[1].told["data"]["revision"]


def test_a_retried_failure_tells_nothing_and_the_last_one_tells_why(driver, sink) -> None:
    """E11, C2: and a requeue is another chain, told by itself."""
    job_id = driver.enqueue("breaks", callback_url=url(sink))
    driver.fail(driver.claim_one(), "no_luck", "the first")
    assert states(job_id) == []
    driver.pass_time(60)
    driver.fail(driver.claim_one(), "no_luck", "the second")
    send(driver)
    assert sink.got[0].told["data"]["result_envelope"]["error"] == {"reason_code": "no_luck", "message": "the second"}
    driver.requeue(job_id)
    driver.complete(driver.claim_one(), "x")
    send(driver)
    assert states(job_id) == [("failed", "delivered"), ("completed", "delivered")]
    assert [g.told["data"]["chain"] for g in sink.got] == [1, 2]


def test_a_cancel_and_a_newer_generation_are_told_as_cancelled_with_their_reasons(driver, sink) -> None:
    """E11: superseded sends `cancelled` with its reason; a default of three events."""
    first = driver.enqueue(callback_url=url(sink))
    driver.cancel(first, reason="no longer wanted")
    older = driver.enqueue(callback_url=url(sink), target="t")
    driver.cancel(driver.enqueue(target="t"))
    send(driver)
    said = [(g.told["data"]["status"], g.told["data"]["state"], g.told["data"]["reason"]) for g in sink.got]
    assert said == [("cancelled", "cancelled", "no longer wanted"), ("cancelled", "superseded", "superseded")]
    assert states(older) == [("cancelled", "delivered")]


def test_what_is_undone_is_told_to_nobody(driver, sink) -> None:
    """RELIABILITY 5.9 (10): never before the commit, and gone with a rollback."""
    from jobs.services import cancellation

    job_id = driver.enqueue(callback_url=url(sink))
    with transaction.atomic():
        cancellation.cancel(job_id, by="test")
        assert states(job_id) == [("cancelled", "pending")]
        transaction.set_rollback(True)
    assert rows(job_id) == []
    assert send(driver) == 0


def test_a_job_without_a_callback_costs_no_statement_more(driver, sink) -> None:
    """E11: the hot path does not pay for what is unused."""
    with statements() as made:
        driver.enqueue()
        driver.complete(driver.claim_one())
    assert not [sql for sql, _ in made if "jobs_delivery" in sql or "jobs_callback" in sql]


def test_the_site_s_own_callback_serves_jobs_without_one_and_only_it_sees_the_token(driver, settings) -> None:
    """A37: a bearer token for the configured address; a caller's own address, even on that host, never gets it."""
    with Sink() as sink:
        allowing(settings, sink, CALLBACK={"url": url(sink, "/site"), "token": "t0ken-canary"})
        site, own = driver.enqueue(), driver.enqueue(callback_url=url(sink, "/own"))
        for _ in range(2):
            driver.complete(driver.claim_one())
        send(driver)
        by_path = {got.line.split()[1]: got.headers.get("authorization") for got in sink.got}
        assert by_path == {"/site": "Bearer t0ken-canary", "/own": None}
        assert [r.site for r in rows(site) + rows(own)] == [True, False]
        assert states(site) == [("completed", "delivered")]
        # Nobody is told of the telling.
        assert Delivery.objects.count() == 2


def test_none_configured_is_none_sent(driver, settings) -> None:
    """A37: and a factory job asks for all four events of the site's."""
    driver.complete(driver.claim_one()) if driver.enqueue() else None
    assert Delivery.objects.count() == 0
    events = {d.type: set(d.callback_events) for d in registry() if d.type.startswith("factory.")}
    assert len(events) == 9
    assert all(heard == set(ALL) for heard in events.values())


@pytest.mark.parametrize(("options", "field", "code"), [
    ({"callback_url": "ftp://example.com/"}, "callback_url", "invalid_callback_url"),
    ({"callback_url": 7}, "callback_url", "invalid_callback_url"),
    ({"callback_url": "https://example.com/", "callback_events": []}, "callback_events", "invalid_callback_events"),
    ({"callback_url": "https://example.com/", "callback_events": ["ended"]}, "callback_events",
     "invalid_callback_events"),
    ({"callback_url": "https://example.com/", "callback_events": "failed"}, "callback_events",
     "invalid_callback_events"),
    ({"callback_events": ["failed"]}, "callback_events", "invalid_callback_events"),
])
def test_what_cannot_be_told_is_refused_before_anything_is_written(driver, options, field, code) -> None:
    """E11: with the field and what would be right."""
    with pytest.raises(Invalid) as refused:
        intake.enqueue("echo", {}, **options)
    assert (refused.value.field, refused.value.reason_code) == (field, code)
    assert Job.objects.count() == 0


def test_a_site_that_sends_none_refuses_them_by_name(driver, settings) -> None:
    """E11."""
    settings.JOBS = {**settings.JOBS, "CALLBACKS": False}
    with pytest.raises(Refused) as refused:
        intake.enqueue("echo", {}, callback_url="https://example.com/")
    assert refused.value.reason_code == "callbacks_disabled"
    assert registry().find("callback-delivery", 1) is None


def test_another_callback_is_another_request(driver, sink) -> None:
    """E6, E11: part of the fingerprint; a repeat changes nothing."""
    asked = {"idempotency_key": "k", "callback_url": url(sink), "callback_events": ["failed"]}
    first = intake.enqueue("echo", {}, **asked)
    assert intake.enqueue("echo", {}, **asked).id == first.id
    for more in ({"callback_url": url(sink, "/x")}, {"callback_events": ["completed"]}, {"callback_url": None,
                                                                                       "callback_events": None}):
        with pytest.raises(Refused) as refused:
            intake.enqueue("echo", {}, **{**asked, **more})
        assert refused.value.reason_code == "idempotency_key_reused"


# --- signatures ------------------------------------------------------------------------------------------------------


def signed(driver, sink, secret, *, tenant=None) -> None:
    """A callback that the reference library takes under this secret, and under no altered body."""
    sink.got.clear()
    driver.enqueue(callback_url=url(sink), tenant=tenant)
    driver.complete(driver.claim_one())
    send(driver)
    [got] = sink.got
    assert Webhook(secret).verify(got.body, got.headers)["id"] == got.headers["webhook-id"]
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(got.body.replace(b"completed", b"complete_", 1), got.headers)


def test_two_live_secrets_sign_while_one_is_changed_for_another(driver, sink, caplog) -> None:
    """E11: Standard Webhooks, verified with its reference library; a revoked one signs nothing any more."""
    house = tenancy.tenant(tenancy.workspace(), None)
    first, old = signing.make(house, by="test")
    signed(driver, sink, old)
    _, new = signing.rotate(house, by="test")
    signed(driver, sink, old)
    signed(driver, sink, new)
    assert len(sink.got[0].headers["webhook-signature"].split()) == 2
    with pytest.raises(signing.TooManySecrets):
        signing.make(house, by="test")
    signing.revoke(house, first.pk, by="test")
    signed(driver, sink, new)
    with pytest.raises(WebhookVerificationError):
        signed(driver, sink, old)
    # Neither in a row of any table nor in a line of a log.
    everything = "".join(str(db.rows(f"SELECT string_agg(t::text, ' ') FROM {name} t")[0][0]) for name, in db.rows(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
    for secret in (old, new):
        assert secret.removeprefix("whsec_") not in everything + caplog.text


def test_a_tenant_s_own_secret_signs_instead_of_the_workspace_s(driver, sink) -> None:
    """E11: and goes with the tenant."""
    house, acme = tenancy.tenant(tenancy.workspace(), None), tenancy.tenant(tenancy.workspace(), "acme", make=True)
    _, shared = signing.make(house, by="test")
    signed(driver, sink, shared, tenant="acme")
    _, own = signing.make(acme, by="test")
    signed(driver, sink, own, tenant="acme")
    signed(driver, sink, shared, tenant="other")


def test_a_secret_survives_a_new_key_of_the_site_that_names_the_old_one(driver, sink, settings) -> None:
    """E11: sealed under SECRET_KEY and its fallbacks; without them nothing is sent unsigned."""
    _, secret = signing.make(tenancy.tenant(tenancy.workspace(), None), by="test")
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "n" * 50
    settings.SECRET_KEY_FALLBACKS = [old]
    signed(driver, sink, secret)
    settings.SECRET_KEY_FALLBACKS = []
    sink.got.clear()
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    send(driver, 1)
    assert (sink.got, rows(job_id)[0].code, rows(job_id)[0].state) == ([], "secret_unreadable", "pending")
    settings.SECRET_KEY_FALLBACKS = [old]
    driver.pass_time(60)
    send(driver)
    assert rows(job_id)[0].state == "delivered"


# --- tries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [0, 1, 4, 11, 12])
def test_an_endpoint_that_fails_some_times_is_told_in_the_next_try(driver, sink, times) -> None:
    """case-I03, E11: always under one id; after the last try a dead letter of the house's, and the job is as it was."""
    left = [times]

    def answer(one, _got):
        left[0] -= 1
        one.sendall(status(500, body=b"<b>no</b>") if left[0] >= 0 else status(204))

    sink.answer = answer
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    before = driver.job(job_id).revision
    for _ in range(13):
        send(driver)
        driver.pass_time(3_700)
        durable(_repair)
    [row] = rows(job_id)
    assert len(sink.got) == min(times + 1, 12)
    assert len({got.headers["webhook-id"] for got in sink.got}) == 1
    assert row.state == ("delivered" if times < 12 else "failed")
    assert row.tries == len(sink.got)
    assert [(d.house, d.reason_code) for d in DeadLetter.objects.all()] == ([] if times < 12 else [(True, "http_500")])
    assert (driver.state(job_id), driver.job(job_id).revision) == ("completed", before)
    assert CallbackHost.objects.count() == (0 if times < 12 else 1)


def _repair() -> None:
    from jobs.store import admission

    admission.repair_groups((0, ""), 100)


def test_a_process_that_dies_after_it_has_sent_sends_again_under_the_same_id(driver, sink) -> None:
    """E11, I14: at least once; the receiver knows the second by its id."""
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    [sender] = claim(driver)
    run(sender)
    driver.pass_time(60)
    driver.recover()
    assert states(job_id) == [("completed", "pending")]
    send(driver)
    assert states(job_id) == [("completed", "delivered")]
    assert len(sink.got) == 2
    assert sink.got[0].headers["webhook-id"] == sink.got[1].headers["webhook-id"]
    assert sink.got[0].body == sink.got[1].body


def test_gone_ends_it_at_once(driver, sink) -> None:
    """E11: 410."""
    sink.answer = status(410)
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    send(driver)
    assert [(r.state, r.code, r.tries) for r in rows(job_id)] == [("failed", "gone", 1)]


def test_a_host_that_asks_to_be_left_alone_is(driver, sink) -> None:
    """E11: Retry-After of 429 and 503, at most an hour; nothing is claimed for this host meanwhile."""
    sink.answer = status(429, "Retry-After: 600")
    ids = [driver.enqueue(callback_url=url(sink)) for _ in range(3)]
    for _ in ids:
        driver.complete(driver.claim_one())
    [one, two] = claim(driver)
    driver.settle(one, run(one))
    driver.settle(two, run(two))
    driver.pass_time(300)
    assert claim(driver) == []
    sink.answer = status(200)
    driver.pass_time(301)
    durable(_repair)
    assert send(driver) == 3
    assert all(rows(job_id)[0].state == "delivered" for job_id in ids)


def test_ten_failures_in_a_row_let_a_host_rest_and_others_go_on(driver, settings) -> None:
    """E11: the longer the more often; a good answer forgets it. What a caller did wrong (4xx) does not count."""
    with Sink(status(503)) as bad, Sink(status(404)) as strange, Sink() as good:
        allowing(settings, bad, strange, good)
        settings.JOBS["CALLBACK_ALLOW"] += [f"localhost:{bad.port}"]
        for _ in range(12):
            driver.enqueue(callback_url=f"http://localhost:{bad.port}/")
            driver.complete(driver.claim_one())
        for _ in range(3):
            driver.enqueue(callback_url=url(strange))
            driver.complete(driver.claim_one())
        send(driver)
        assert len(bad.got) in (10, 11)
        assert CallbackHost.objects.values_list("name", flat=True).get() == group("localhost")
        driver.enqueue(callback_url=url(good))
        driver.complete(driver.claim_one())
        send(driver)
        assert len(good.got) == 1
        bad.answer = status(200)
        driver.pass_time(3_600)
        durable(_repair)
        send(driver)
        assert CallbackHost.objects.count() == 0
        assert Delivery.objects.filter(host="localhost", state="delivered").count() == 12


def test_hosts_that_are_asked_no_more_are_forgotten_a_day_later(driver, sink) -> None:
    """E13: anybody may name ever new ones; while one is tried again its failures in a row are counted on."""
    sink.answer = status(503)
    driver.cancel(driver.enqueue(callback_url=url(sink)))
    send(driver, 1)
    duty = retention.Retention()
    for hours, left in ((1, 1), (24, 0)):
        driver.pass_time(3_600 * hours)
        for _ in range(6):
            duty.tick()
        assert CallbackHost.objects.count() == left


def test_a_thousand_ends_to_one_host_are_two_at_once_and_another_host_is_served_meanwhile(driver, settings) -> None:
    """E11, case-I02: the flood stands behind the gate, where skipping it costs a claim nothing."""
    with Sink() as victim, Sink() as other:
        allowing(settings, victim, other, CALLBACK_ALLOW=[
            f"127.0.0.1:{victim.port}", f"localhost:{other.port}"])
        db.rows("SELECT 1")
        ids = [e.id for e in intake.enqueue_many(
            [intake.Request("echo", {}, intake.Options(callback_url=url(victim))) for _ in range(1_000)])]
        with transaction.atomic():
            from jobs.states import Verb
            from jobs.store import moves
            from jobs.store.verbs import Move

            moves.apply([Move(id_, Verb.CANCEL, by="test") for id_ in ids])
        assert Delivery.objects.filter(state="pending").count() == 1_000
        first = claim(driver, 50)
        assert len(first) == 2
        driver.cancel(driver.enqueue(callback_url=f"http://localhost:{other.port}/"))
        [fast] = claim(driver, 50)
        driver.settle(fast, run(fast))
        assert len(other.got) == 1
        for job in first:
            driver.settle(job, run(job))
        assert len(claim(driver, 50)) == 2


def test_deliveries_are_under_no_cap_limit_or_list_of_a_tenant_s(driver, sink) -> None:
    """E11: neither the tenant's concurrency nor its list; nor does an archived workspace's tenant keep news back."""
    from jobs import selectors

    limit(tenant_concurrency=1, exclusive_group_max=1)
    for _ in range(2):
        driver.cancel(driver.enqueue(callback_url=url(sink)))
    held = claim(driver)
    assert len(held) == 2
    seen = selectors.scope(tenancy.workspace().pk, None)
    listed = selectors.jobs(seen, selectors.Filter(), limit=50).items
    assert {job.type for job in listed} == {"echo"}


def test_nobody_can_ask_for_a_delivery_himself(driver, sink) -> None:
    """E11, B13: by no door that a caller has, nor may a site declare one."""
    for door in (Door(), Door("POST /api/v1/jobs", "user", "key:x")):
        with pytest.raises(Refused):
            intake.enqueue("callback-delivery", {"delivery": "00000000-0000-0000-0000-000000000000"}, door=door)
    with pytest.raises(Invalid):
        define("callback-delivery", callbacks.callback_delivery, {"isolated": False})


# --- again, and gone -------------------------------------------------------------------------------------------------


def ended(driver, sink) -> str:
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    send(driver)
    return job_id


def test_a_delivery_is_sent_again_under_its_id(driver, sink) -> None:
    """E11: delivered or failed; the dead letter is answered with it; what is under way is not doubled."""
    job_id = ended(driver, sink)
    [row] = rows(job_id)
    again = deliveries.replay(row.pk, by="user:x")
    assert (again.state, again.replays) == ("pending", 1)
    with pytest.raises(deliveries.DeliveryPending):
        deliveries.replay(row.pk, by="user:x")
    sink.answer = status(410)
    send(driver)
    assert rows(job_id)[0].state == "failed"
    sink.answer = status(200)
    deliveries.replay(row.pk, by="user:x")
    assert [d.resolution for d in DeadLetter.objects.all()] == ["discarded"]
    send(driver)
    assert states(job_id) == [("completed", "delivered")]
    assert len({got.headers["webhook-id"] for got in sink.got}) == 1
    assert rows(job_id)[0].tries == 3


def test_what_was_redacted_is_told_to_nobody(driver, sink) -> None:
    """E13: neither waiting news nor a replay; the address, the host and what came back are gone with the payload."""
    job_id = driver.enqueue(callback_url=url(sink, "/s3cr3t-path"))
    driver.complete(driver.claim_one())
    told = ended(driver, sink)
    sink.got.clear()
    waiting = driver.enqueue(callback_url=url(sink, "/s3cr3t-path"))
    driver.complete(driver.claim_one())
    for id_ in (job_id, told, waiting):
        erasure.redact_job(id_, by="test", reason="test")
        check(id_)
    send(driver)
    assert sink.got == []
    assert states(waiting) == [("completed", "dropped")]
    with pytest.raises(deliveries.DeliveryRedacted):
        deliveries.replay(rows(told)[0].pk, by="x")
    found = db.rows("SELECT string_agg(t::text, ' ') FROM jobs_job t")[0][0] + db.rows(
        "SELECT string_agg(t::text, ' ') FROM jobs_delivery t")[0][0]
    assert "s3cr3t-path" not in found
    assert "127.0.0.1" not in found


def test_a_job_is_kept_until_its_news_is_out_and_takes_the_log_along(driver, sink) -> None:
    """E13: retention waits for a callback as it waits for `on_ended`."""
    job_id = driver.enqueue(callback_url=url(sink))
    driver.complete(driver.claim_one())
    driver.pass_time(40 * 86_400)
    sweep()
    assert Job.objects.filter(pk=job_id).exists()
    send(driver)
    sweep()
    assert not Job.objects.filter(pk=job_id).exists()
    assert (Delivery.objects.count(), DeliveryTry.objects.count()) == (0, 0)


def sweep() -> None:
    duty = retention.Retention()
    while duty.tick(500):
        pass


def test_a_deleted_tenant_takes_its_news_and_secrets_along(driver, sink) -> None:
    """E13: what has not been sent by then is sent to nobody."""
    from jobs.services.erasure import Erasures

    tenant = tenancy.tenant(tenancy.workspace(), "acme", make=True)
    signing.make(tenant, by="test")
    driver.enqueue(callback_url=url(sink), tenant="acme")
    driver.complete(driver.claim_one())
    erasure.delete(tenant, by="test", reason="test")
    duty = Erasures()
    for _ in range(10):
        duty.tick(500)
        driver.pass_time(130)
    assert not type(tenant).objects.filter(pk=tenant.pk).exists()
    assert (Delivery.objects.count(), CallbackSecret.objects.count()) == (0, 0)
    assert send(driver) == 0
    assert sink.got == []


def test_a_large_artifact_is_told_as_a_place(driver, sink) -> None:
    """E11: over 64 KiB."""
    job_id = driver.enqueue(callback_url=url(sink))
    driver.settle(driver.claim_one(), done("x" * 70_000))
    send(driver)
    envelope = sink.got[0].told["data"]["result_envelope"]
    assert (envelope["artifact"], envelope["artifact_path"]) == (None, f"/api/v1/jobs/{job_id}/artifact")


