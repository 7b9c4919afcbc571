"""What the admin shows of payloads, and that no text of any row ever becomes markup (RELIABILITY 6.2 "Admin XSS")."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote as key_of
from django.db import connection

from jobs.admin import showing
from jobs.models import Attempt, Command, DeadLetter
from jobs.redaction import REDACTED
from tests.edges import hostile
from tests.edges.admin_people import MODELS, act, confirm, quick, somebody, url  # noqa: F401
from tests.pages.people import person

CANARY = "canary-5e9c1f"


@pytest.fixture
def secretive(driver):
    """A job with the canary in input, artifact, checkpoint and a command: its id."""
    driver.enqueue("echo", {"value": CANARY})
    done = driver.claim_one()
    driver.complete(done, {"answer": CANARY})
    job_id = driver.enqueue("echo", {"value": CANARY})
    held = driver.claim_one()
    driver.fail(held, retryable=False)
    Command.objects.create(job_id=job_id, kind="steer", payload=json.dumps({"say": CANARY}), payload_hash=b"", by="me",
                           tenant_id=1)
    return done.id, job_id


def everywhere(client, ids) -> dict[str, str]:
    """Every list, detail, history and confirmation, by path."""
    done, failed = ids
    attempts = Attempt.objects.values_list("pk", flat=True)
    letter = DeadLetter.objects.get(job_id=failed).pk
    paths = [url(model) for model in MODELS]
    paths += [url("job", pk, word) for pk in ids for word in ("change", "history")]
    paths += [url("attempt", pk, "change") for pk in attempts]
    paths += [url("artifact", done, word) for word in ("change", "history")]
    paths += [url("command", Command.objects.get().pk, word) for word in ("change", "history")]
    paths += [url("deadletter", letter, word) for word in ("change", "history")]
    paths += [f"{url('job', 'answer', 'cancel')}?id={failed}", f"{url('deadletter', 'answer', 'requeue')}?id={letter}",
              "/admin/", "/admin/jobs/"]
    return {path: client.get(path).content.decode() for path in paths}


def test_payloads_are_shown_to_whoever_may_view_them_and_to_nobody_else(secretive):
    """6.2: off for staff by default; not in a list, a detail, a history, a log entry or a title."""
    client = somebody("stranger")
    client.force_login(person("worker", "view_job", "requeue_job", "cancel_job", "discard_job"))
    confirm(client, "deadletter", "requeue", DeadLetter.objects.get().pk)
    pages = everywhere(client, secretive)
    assert len(pages) > 25
    assert [path for path, page in pages.items() if CANARY in page] == []
    assert CANARY not in str(list(LogEntry.objects.values()))
    shown = [path for path, page in everywhere(somebody("reader"), secretive).items() if CANARY in page]
    done, failed = secretive
    assert sorted(shown) == sorted([url("job", done, "change"), url("job", failed, "change"),
                                    url("artifact", done, "change"),
                                    url("command", Command.objects.get().pk, "change")])


def test_secrets_are_left_out_by_their_names_at_any_depth(driver):
    """A64: also for whoever may view payloads."""
    secret = {"api_key": CANARY, "list": [{"Password": CANARY}], "deep": {"session_token": [CANARY, {"x": CANARY}]},
              "value": "kept"}
    shown = showing.readable(json.dumps(secret))
    assert CANARY not in shown
    assert shown.count(REDACTED) == 3 or shown.count(REDACTED) == 4
    assert "kept" in shown
    for _ in range(64):
        secret = {"in": secret}
    assert CANARY not in showing.readable(json.dumps(secret))
    assert "kept" in showing.readable(json.dumps(secret))


def test_large_and_broken_payloads_are_cut_and_never_an_error(driver):
    """case-D10, G07: depth 64 and a megabyte."""
    assert len(showing.readable(json.dumps({"x": "y" * 1_000_000}))) < showing.PAYLOAD_LIMIT + 100
    assert showing.readable("[" * 100_000 + "]" * 100_000) == "(not readable as JSON)"
    assert showing.readable("no json, token=abc") == "(not readable as JSON)"
    job_id = driver.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE jobs_job SET input = %s WHERE id = %s",
                       [json.dumps({"value": "\N{GRINNING FACE}" * 250_000}, ensure_ascii=False), job_id])
    page = somebody("reader").get(url("job", job_id, "change"))
    assert page.status_code == 200
    assert len(page.content) < 600_000


def test_no_text_of_any_row_becomes_markup(driver):
    """25 strings in every text column of every model: each list, page, history and confirmation, by a parser."""
    client, made = somebody("root"), []
    for word in hostile.CORPUS:
        made.append((word, hostile.rows(driver, word)))
    for model in MODELS:
        check(client.get(url(model)), model)
    for word, rows in made:
        for model, pk in rows.items():
            answer = client.get(url(model, quote(str(key_of(pk)), safe=""), "change"))
            reader = check(answer, f"{model} {word}")
            if model == "job":
                assert "".join(reader.text).count(word) > 8, word


def test_confirmations_histories_messages_and_searches_escape_as_well(driver):
    """What a person types comes back as text."""
    word = "\"'><img src=x onerror=alert(1)></script><script>alert(1)</script>"
    rows = hostile.rows(driver, word)
    client = somebody("stranger")
    user = person("evil", superuser=True)
    user.username = "<img src=x onerror=alert(1)>"
    user.save()
    client.force_login(user)
    check(act(client, "deadletter", "requeue", rows["deadletter"]), "preview")
    check(act(client, "job", "cancel", rows["job"], query="?q=" + quote(word)), "preview of a search")
    check(confirm(client, "deadletter", "discard", rows["deadletter"], reason=word), "confirmed")
    check(confirm(client, "deadletter", "discard", rows["deadletter"], reason=word + "\x00", back=word), "refused")
    for path in (url("deadletter", rows["deadletter"], "history"), url("deadletter", rows["deadletter"], "change"),
                 url("job", rows["job"], "change"), "/admin/"):
        check(client.get(path), path)
    for model in MODELS:
        for query in (f"q={quote(word)}", f"older={quote(word)}", f"created={quote(word)}"):
            check(client.get(f"{url(model)}?{query}", follow=True), f"{model} {query}")
    for parameter in ("state", "type", "queue", "group", "reason", "workspace", "tenant"):
        check(client.get(f"{url('job')}?{parameter}={quote(word)}"), parameter)
    check(client.get(url("leader", quote(key_of(word), safe=""), "change"), follow=True), "no such leader")
    said = {"name": word, "workspace": word, "tenant": word, "worker_groups": word}
    check(client.post(url("key", "add"), said), "key")
    check(client.post(url("limits", "add"), {"workspace": word, "tenant_concurrency": word}), "limits")
    user.delete()


def check(answer, where):
    """A page on which nothing could run."""
    assert answer.status_code == 200, where
    reader = hostile.read(answer.content.decode())
    assert reader.faults == [], where
    return reader


def test_the_reader_sees_what_is_not_escaped():
    """A check that finds nothing must be able to find something."""
    bad = [word for word in hostile.CORPUS if hostile.read(f"<p title=\"{word}\">{word}</p>").faults]
    assert len(bad) >= 15
