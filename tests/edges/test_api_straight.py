"""The API in front of Django's handler: what its middleware did for it is done all the same."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading

import pytest
from django.core.asgi import get_asgi_application
from django.db import connection, transaction

from jobs.api.straight import THREADS, straight
from jobs.models import Job
from jobs.services import intake
from tests.edges.test_api_served import site  # noqa: F401

SAFE = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin"}


def ask(site, method: str, path: str, body: bytes = b"", **headers: str):  # noqa: F811
    """A plain request: what came back, and its body."""
    line = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    said = {"Authorization": f"Bearer {site.caller.secret}", "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()}}
    line.request(method, f"/api/v1{path}", body, {name: value for name, value in said.items() if value})
    answer = line.getresponse()
    raw = answer.read()
    line.close()
    return answer, raw


def test_every_answer_is_json_with_an_id_and_the_headers_of_the_site(site):  # noqa: F811
    """API8, RELIABILITY 6.2: good and bad answers alike, 404, 405, 415 and a foreign host among them."""
    asked = [
        ("GET", "/jobs", b"", {}, 200, None), ("GET", "/definitions", b"", {}, 200, None),
        ("GET", "/openapi.json", b"", {"Authorization": ""}, 200, None),
        ("GET", "/jobs", b"", {"Authorization": ""}, 401, "unauthenticated"),
        ("GET", "/jobs/nowhere", b"", {}, 404, "job_not_found"), ("GET", "/nowhere", b"", {}, 404, "not_found"),
        ("DELETE", "/jobs", b"", {}, 405, "method_not_allowed"),
        ("OPTIONS", "/jobs", b"", {}, 405, "method_not_allowed"),
        ("POST", "/jobs", b"{", {}, 400, "malformed_json"),
        ("POST", "/jobs", b"{}", {"Content_Type": "text/plain"}, 415, "unsupported_media_type"),
        ("POST", "/jobs", b"{}", {"Content_Encoding": "gzip"}, 415, "unsupported_media_type"),
        ("GET", "/jobs", b"", {"Host": "evil.example"}, 400, "bad_request"),
        ("GET", "/jobs", b"", {"Accept": "text/html"}, 200, None)]
    for method, path, body, headers, status, code in asked:
        answer, raw = ask(site, method, path, body, X_Request_ID="mine", **headers)
        assert answer.status == status, (method, path, raw[:300])
        told = json.loads(raw)
        assert {name: answer.headers.get(name) for name in SAFE} == SAFE
        assert answer.headers["X-Request-ID"] == "mine"
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        if code is not None:
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert (told["code"], told["request_id"]) == (code, "mine")
        if path != "/openapi.json":
            assert answer.headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in answer.headers
        assert answer.headers.get("Allow") == ("GET, POST" if path == "/jobs" and code != "bad_request" else
                                               answer.headers.get("Allow"))


def test_a_body_that_is_too_long_is_refused_by_the_server_before_it_is_read(site):  # noqa: F811
    """RELIABILITY 6.2: as a problem too, though nothing of the site has seen the request."""
    answer, raw = ask(site, "POST", "/jobs", b"x" * 1_200_000)
    assert (answer.status, json.loads(raw)["code"]) == (413, "too_large")
    said = {name: answer.headers[name] for name in ("Content-Type", "Cache-Control", "X-Content-Type-Options")}
    assert said == {"Content-Type": "application/problem+json", "Cache-Control": "no-store",
                    "X-Content-Type-Options": "nosniff"}


def test_a_head_is_a_get_without_its_body(site):  # noqa: F811
    """Its headers are the same; what it may do is in Allow."""
    answer, raw = ask(site, "HEAD", "/jobs")
    assert (answer.status, raw, answer.headers["Allow"]) == (200, b"", "GET, POST")


@pytest.mark.parametrize("count", [20])
def test_many_connections_are_answered_by_few_threads(site, count):  # noqa: F811
    """C3: each request by one of a few threads; connections are kept, and nothing is lost or mixed up."""
    lines = [http.client.HTTPConnection("127.0.0.1", site.port, timeout=30) for _ in range(count)]
    head = {"Authorization": f"Bearer {site.caller.secret}", "Content-Type": "application/json"}
    for turn in range(3):
        for n, line in enumerate(lines):
            line.request("POST", "/api/v1/jobs", json.dumps({"type": "outside", "job_id": f"j{turn}-{n}"}), head)
        for n, line in enumerate(lines):
            answer = line.getresponse()
            assert json.loads(answer.read())["job_id"] == f"j{turn}-{n}"
    for line in lines:
        line.close()
    assert Job.objects.count() == 3 * count


def test_a_query_that_is_no_text_is_refused():
    """6.2: our own server refuses it before; under another one it was an error of the application."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/api/v1/jobs", "query_string": b"a=\xff", "headers": []}
    asyncio.run(straight(get_asgi_application())(scope, receive, send))
    assert sent[0]["status"] == 400


def test_where_every_thread_of_the_api_waits_the_rest_of_the_site_is_answered(site):  # noqa: F811
    """6.2: more requests than threads wait for a lock; health and pages do not wait with them, and nothing is lost."""
    known = intake.enqueue("outside", {}).id
    found = []

    def asking() -> None:
        found.append(ask(site, "GET", f"/jobs/{known}")[0].status)

    callers = [threading.Thread(target=asking) for _ in range(THREADS + 4)]
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE jobs_job IN ACCESS EXCLUSIVE MODE")
            for one in callers:
                one.start()
            waiting = ("SELECT count(*) >= %s FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                       " AND datname = current_database()")
            done = False
            for _ in range(600):
                cursor.execute("SELECT pg_stat_clear_snapshot()")
                cursor.execute(waiting, [THREADS])
                if done := cursor.fetchone()[0]:
                    break
                threading.Event().wait(0.05)
            assert done, "the threads do not wait"
        for path in ("/livez", "/login/"):
            line = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
            line.request("GET", path)
            assert line.getresponse().status == 200
            line.close()
        assert found == []
    for one in callers:
        one.join(30)
    assert found == [200] * len(callers)
