"""The commands for the hand: keys, enqueue, explain. A refusal is one line and never a traceback."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from jobs import clock
from jobs.models import Job, Key, Limits, Receipt, Worker
from jobs.services import keys, tenancy, workers
from tests import database as db
from tests.driver import check, claimer, quiet_recovery
from tests.edges.caller import Caller, everything


def say(*words: object, **options: object) -> str:
    """What a command prints."""
    out = io.StringIO()
    call_command(*map(str, words), stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue().strip()


def refused(*words: object) -> str:
    """The one line of a refusal."""
    with pytest.raises(CommandError) as caught:
        say(*words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def reason(job_id: str) -> str | None:
    told = json.loads(say("explain", job_id, "--json"))["not_running"]
    return told and told["code"]


# --- keys ----------------------------------------------------------------------------------------------------------


def test_a_key_is_made_listed_and_revoked(driver):
    """E2: hashed, scoped, shown once."""
    secret = say("keys", "create", "runner one", "--permission", "claim", "--permission", "read", "--tenant", "acme",
                 "--groups", "runners, vault", "--expires-days", "1.5")
    key = keys.find(secret)
    assert key is not None
    assert (key.permissions, key.worker_groups, key.tenant.subject) == (["claim", "read"], ["runners", "vault"], "acme")
    assert timedelta(days=1) < key.expires_at - clock.now() < timedelta(days=2)
    assert secret.partition(".")[2] not in str(db.rows("SELECT * FROM jobs_key"))
    listed = say("keys", "list")
    assert key.prefix in listed
    assert "tenant acme" in listed
    assert secret not in listed
    assert "revoked" in say("keys", "revoke", key.prefix)
    assert keys.find(secret) is None
    assert "revoked" in say("keys", "list")


def test_a_key_without_permissions_named_may_enqueue_read_and_control(driver):
    """The least that a caller needs; claiming is asked for."""
    assert keys.find(say("keys", "create", "x")).permissions == ["control", "enqueue", "read"]


def test_wrong_keys_are_one_line(driver):
    """DESIGN 8."""
    assert "workspace" in refused("keys", "create", "x", "--workspace", "nowhere")
    assert "ghost" in refused("keys", "revoke", "ghost")
    refused("keys", "create", "x", "--permission", "everything")
    refused("keys", "create", "x", "--expires-days", "-1")
    refused("keys", "create", "x", "--tenant", "a\nb")
    assert Key.objects.count() == 0


# --- enqueue -------------------------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_and_keeps_the_options(driver):
    """E2, E4."""
    job = Job.objects.get(pk=say("enqueue", "echo", '{"value": "x"}', "--queue", "chat", "--priority", "-5",
                                 "--delay", "30",
                                 "--key", "k", "--target", "t", "--tenant", "acme", "--retry-none"))
    assert (job.queue, job.priority, job.gate, job.max_attempts, job.tenant.subject) == ("chat", -5, "scheduled",
                                                                                         None, "acme")
    assert json.loads(job.input)["value"] == "x"
    check(job.pk)


def test_enqueue_reads_standard_input(driver, monkeypatch):
    """`-` for pipes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"value": "piped"}')))
    assert json.loads(Job.objects.get(pk=say("enqueue", "echo", "-")).input)["value"] == "piped"


def test_the_same_key_again_prints_the_same_id(driver):
    """E6."""
    first = say("enqueue", "echo", '{"value": "x"}', "--key", "k")
    assert say("enqueue", "echo", '{"value": "x"}', "--key", "k") == first
    assert "key" in refused("enqueue", "echo", '{"value": "y"}', "--key", "k")


@pytest.mark.parametrize("words", [
    ("eco",), ("echo", "{"), ("echo", "[]"), ("echo", '{"valu": 1}'), ("echo", "NaN"), ("echo", '{"value": "\\u0000"}'),
    ("echo", "{}", "--queue", "nowhere"), ("echo", "{}", "--priority", "900"), ("echo", "{}", "--delay", "-1"),
    ("echo", "{}", "--job-id", "a b"), ("echo", "{}", "--workspace", "nowhere"), ("echo", "{}", "--tenant", "a\x00"),
    ("echo", "{}", "--key", "\x00"), ("echo", "{}", "--priority", "x"), ("echo", "\udcff"), ("disabled",),
])
def test_each_wrong_enqueue_is_one_line_and_makes_nothing(driver, words):
    """Errors as CommandError, never a traceback."""
    rows = everything()
    refused("enqueue", *words)
    assert everything() == rows


# --- explain -------------------------------------------------------------------------------------------------------


def test_the_story_of_a_job_is_told_from_its_receipts(driver):
    """DESIGN 7.1: claims, failures, lapses, releases, requeue, each with its moment; the chain is checked."""
    job_id = driver.enqueue()
    driver.release(driver.claim_one())
    held = driver.claim_one()
    driver.start(held)
    driver.fail(held, "no_luck", "line one\nline two", retryable=False)
    driver.requeue(job_id)
    driver.claim_one()
    db.pass_time(40)
    quiet_recovery().run()
    driver.complete(driver.claim_one(), "done")
    told = say("explain", job_id)
    for words in ("enqueued as echo@1 by python", "attempt 1 claimed by worker:",
                  "attempt 1 gave the job back; the job waits again",
                  "attempt 2 sent its first heartbeat", "attempt 2 failed with no_luck; the job failed for good",
                  "a dead letter was",
                  "requeued by user:test", "the lease of attempt 3 ran out", "attempt 4 completed the job",
                  "no_luck: line one line two", "chain of receipts: ok", "completed"):
        assert words in told, (words, told)
    assert "not running" not in told
    story = json.loads(say("explain", job_id, "--json"))
    assert [s["number"] for s in story["steps"]] == list(range(1, len(story["steps"]) + 1))
    assert (story["chain_ok"], story["not_running"], len(story["attempts"])) == (True, None, 4)


def test_every_other_step_has_words_too(driver):
    """E12: no kind falls through to its raw form."""
    old = driver.enqueue(target="t")
    driver.enqueue(target="t")
    paused = driver.enqueue()
    driver.pause(paused)
    driver.resume(paused)
    driver.cancel(paused)
    assert "superseded by generation 2" in say("explain", old)
    told = say("explain", paused)
    assert "paused by user:test" in told
    assert "resumed by user:test" in told
    assert "cancelled by user:test" in told


def test_a_broken_chain_is_marked(driver):
    """A12: tampering shows."""
    job_id = driver.enqueue()
    driver.claim_one()
    with connection.cursor() as cursor:
        # What the table's owner could do; the application's triggers refuse it to everybody else.
        cursor.execute("ALTER TABLE jobs_receipt DISABLE TRIGGER USER")
        try:
            Receipt.objects.filter(job_id=job_id,
                                   number=1).update(body='{"by":"x","input":"","origin":"user","to":"queued"}')
        finally:
            cursor.execute("ALTER TABLE jobs_receipt ENABLE TRIGGER USER")
    assert "BROKEN, receipt 1: hash mismatch" in say("explain", job_id)
    assert json.loads(say("explain", job_id, "--json"))["chain_ok"] is False


def serve(*types: str, groups=("default",), queues=("collect",)) -> Worker:
    return workers.register("w", 2, groups, queues, types or ("echo@1",))


def test_the_first_reason_why_a_job_waits_is_told(driver):
    """DESIGN 7.1: not due, paused, nobody there, wrong type, waiting for its turn."""
    job_id = driver.enqueue()
    assert reason(job_id) == "no_live_worker"
    worker = serve("noop@1")
    assert reason(job_id) == "no_worker_knows_type"
    serve(queues=("chat",))
    assert reason(job_id) == "no_worker_knows_type"
    able = serve()
    assert reason(job_id) == "claimable_now"
    assert reason(driver.enqueue()) == "waiting_for_turn"
    Worker.objects.filter(pk=able.pk).update(seen_at=clock.now() - timedelta(seconds=61))
    assert reason(job_id) == "no_worker_knows_type"
    workers.stopped(worker.pk)
    assert reason(job_id) == "no_live_worker"
    driver.pause(job_id)
    assert reason(job_id) == "paused"
    assert reason(driver.enqueue(delay_s=90)) == "not_due"
    assert reason(driver.enqueue("outside")) == "no_live_runner"
    Key.objects.filter(pk=Caller(worker_groups=["runners"]).key.pk).update(last_used_at=clock.now())
    assert reason(driver.enqueue("outside")) == "waiting_for_turn"


def test_a_full_tenant_and_a_full_group_are_named(driver):
    """C9, C11: who holds it."""
    serve()
    workspace = tenancy.workspace()
    Limits.objects.create(workspace=workspace, tenant_concurrency=1, exclusive_group_max=1)
    first, second, other = driver.enqueue(exclusive_group="g"), driver.enqueue(exclusive_group="g"), driver.enqueue()
    assert reason(first) == "claimable_now"
    assert reason(second) == "exclusive_group_full"
    assert first in say("explain", second)
    driver.claim(1)
    driver.claim(1, by=claimer())
    assert reason(first) is None
    assert reason(other) == "tenant_at_cap"
    assert "1 of at most 1" in say("explain", other)


def test_a_job_is_found_by_either_id_and_a_missing_one_is_one_line(driver):
    """E2: an operator finds ours anywhere, a job_id within its tenant."""
    job_id = driver.enqueue(job_id="mine", tenant="acme")
    assert job_id in say("explain", "mine", "--tenant", "acme")
    assert job_id in say("explain", job_id)
    assert "no such job" in refused("explain", "mine")
    assert "no such job" in refused("explain", "00000000-0000-0000-0000-000000000000")
    assert "no such job" in refused("explain", "a\x00b")
