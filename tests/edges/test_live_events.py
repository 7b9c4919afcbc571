"""Event streams: what they say, how they refuse, and what they cost (A59, E12)."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.services import tenancy
from tests.driver import Driver
from tests.edges.caller import Caller, problem
from tests.pages.site import server
from tests.worker.processes import until


@pytest.fixture(scope="module")
def process(django_db_setup):
    with server(JOBS_LIVE_PER_HOLDER="40", JOBS_LIVE_CHECK_S="0.3") as started:
        yield started


class Stream:
    """One answer that goes on."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer

    def take(self, *names: str) -> tuple[str, dict[str, Any], str | None]:
        """The next event of these names (default: any but a ping): name, data, id."""
        while True:
            told: dict[str, str] = {}
            while line := self.answer.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                told[name] = value
            assert told, "the stream has ended"
            if told["event"] in names or (not names and told["event"] != "ping"):
                return told["event"], json.loads(told["data"]), told.get("id")


@contextmanager
def following(process: Any, path: str, caller: Caller, **headers: str) -> Iterator[Stream]:
    client = http.client.HTTPConnection("127.0.0.1", process[0], timeout=20)
    told = {"Authorization": f"Bearer {caller.secret}", "Accept": "text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()}}
    client.request("GET", f"/api/v1{path}", headers=told)
    answer = client.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream"), answer.read()
    assert answer.headers["Cache-Control"] == "no-store"
    try:
        yield Stream(answer)
    finally:
        answer.close()
        client.close()


def test_a_job_is_followed_from_init_to_its_end(process, driver: Driver):
    """A59, E12: the receipt's number is the event's id, the data says no more than where the job stands."""
    caller, job_id = Caller(), driver.enqueue(job_id="mine")
    with following(process, "/jobs/mine/events?until=end", caller) as stream:
        init = {"job": job_id, "number": 1, "state": "queued", "revision": 1}
        assert stream.take() == ("init", init, "1")
        held = driver.claim_one()
        begun = time.monotonic()
        assert stream.take("job")[1]["state"] == "leased"
        assert time.monotonic() - begun < 10
        driver.complete(held)
        name, told, id_ = stream.take("job")
        assert (name, told["state"], id_) == ("job", "completed", str(driver.job(job_id).number))
        assert stream.take("end") == ("end", {}, None)
        assert stream.answer.read() == b""


def test_a_client_goes_on_behind_the_number_that_it_has_read(process, driver):
    """A59, E12, case-H03: by Last-Event-ID as browsers send it, pings between; beyond the last all is read anew."""
    caller, job_id = Caller(), driver.enqueue()
    driver.pause(job_id), driver.resume(job_id)
    with following(process, f"/jobs/{job_id}/events", caller, Last_Event_ID="1") as stream:
        assert [stream.take()[2] for _ in range(2)] == ["3", "3"]
    with following(process, f"/jobs/{job_id}/events?after=77", caller) as stream:
        assert [stream.take()[0] for _ in range(2)] == ["init", "resync"]
    with following(process, f"/jobs/{job_id}/events", caller, Last_Event_ID="3") as stream:
        stream.take("init")
        assert stream.take("ping", "job", "resync")[0] == "ping"


def test_a_tenants_stream_announces_its_own_jobs(process, driver):
    """A59, C25."""
    tenancy.tenant(tenancy.workspace(), "us", make=True)
    with following(process, "/events", Caller(), X_Tenant_Subject="us") as stream:
        assert stream.take() == ("init", {}, None)
        driver.enqueue()
        job_id = driver.enqueue(tenant="us")
        assert stream.take() == ("jobs", {"jobs": [{"job": job_id, "number": 1}]}, None)


def test_a_key_that_is_revoked_ends_its_streams(process, driver):
    """RELIABILITY 6.2: within the interval that the process looks again."""
    caller = Caller()
    with following(process, "/events", caller) as stream:
        stream.take()
        caller.key.delete()
        assert stream.take()[:2] == ("error", {"code": "unauthenticated", "message": "Sign in, or send a live key."})
        assert stream.answer.read() == b""


REFUSED = [
    ("/jobs/none/events", {}, 404, "job_not_found"), ("/jobs/{theirs}/events", {}, 404, "job_not_found"),
    ("/events", {"Authorization": ""}, 401, "unauthenticated"), ("/events", {"Authorization": "Bearer a.b"}, 401, None),
    ("/events", {"X-Tenant-Subject": "nobody"}, 404, "tenant_not_found"), ("/events?after=1", {}, 400, None),
    ("/jobs/{mine}/events?after=x", {}, 400, "invalid_after"), ("/jobs/{mine}/events?until=x", {}, 400, None),
    ("/jobs/{mine}/events?key=x", {}, 400, None), ("/jobs/{mine}/events", {"Last-Event-ID": "x"}, 400, "invalid_after"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals_are_those_of_the_api(process, driver, case):
    """E2: problems with their codes, foreign like unknown."""
    path, headers, status, code = REFUSED[case]
    tenancy.tenant(tenancy.workspace(), "them", make=True)
    names = {"mine": driver.enqueue(),
             "theirs": driver.enqueue(tenant="them")}
    client = http.client.HTTPConnection("127.0.0.1", process[0], timeout=20)
    told = {"Authorization": f"Bearer {Caller().secret}", **headers}
    client.request("GET", f"/api/v1{path.format(**names)}", headers=told)
    answer = client.getresponse()
    body = json.loads(answer.read())
    client.close()
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), body
    assert code in (None, body["code"])


def test_a_strange_host_is_refused_before_anything_is_read(process, driver):
    """Streams stand beside Django's handler, and ask for a host of ours all the same."""
    client = http.client.HTTPConnection("127.0.0.1", process[0], timeout=20)
    told = {"Host": "evil.example", "Authorization": f"Bearer {Caller().secret}"}
    client.request("GET", "/api/v1/events", headers=told)
    answer = client.getresponse()
    assert (answer.status, answer.read()[:1]) == (400, b"{")
    client.close()


def answered(process: Any, path: str, **headers: str) -> http.client.HTTPResponse:
    """The head of an answer."""
    client = http.client.HTTPConnection("127.0.0.1", process[0], timeout=20)
    client.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = client.getresponse()
    client.close()
    return answer


def test_streams_have_the_headers_of_every_answer_and_a_requests_id(process, driver):
    """RELIABILITY 6.2: also where they stand beside Django's handler."""
    bearer = f"Bearer {Caller().secret}"
    for told, status in (({"Authorization": bearer}, 200), ({}, 401), ({"Host": "evil.example"}, 400)):
        answer = answered(process, "/api/v1/events", X_Request_ID="mine", **told)
        assert (answer.status, answer.headers["X-Request-ID"]) == (status, "mine")
        assert status == 400 or answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_path_that_only_looks_like_a_streams_goes_through_djangos_handler(process, database):
    """Other views count on the middleware: a login is asked for, and nothing breaks."""
    for path in ("/admin/v1/events", "/admin/jobs/v1/jobs/x/events"):
        assert answered(process, path).status == 302, path
    for path in ("/v1/events", "/static/v1/events", "/api/x/v1/events"):
        assert answered(process, path).status == 404, path


def test_under_wsgi_a_stream_says_what_it_needs(api):
    """A server with a thread a request cannot hold streams: refused by name."""
    problem(api.get("/events"), 501, "needs_asgi")
    assert api.post("/events").status_code == 405


def test_streams_keep_no_thread_and_go_when_their_clients_go(process, driver):
    """case-C07: thirty streams cost a few threads for looking things up, and nothing once they are gone."""
    caller = Caller()
    tasks = Path(f"/proc/{process[1].pid}/task")
    if not tasks.exists():
        pytest.skip("no /proc")
    before = len(os.listdir(tasks))
    streams = [following(process, "/events", caller) for _ in range(30)]
    for stream in streams:
        stream.__enter__().take("init")
    assert len(os.listdir(tasks)) <= before + 6
    for stream in streams:
        stream.__exit__(None, None, None)

    # Forty may be open at once: places that were left are free.
    def all_again() -> bool:
        again = [following(process, "/events", caller) for _ in range(30)]
        first = [stream.__enter__().take()[0] for stream in again]
        for stream in again:
            stream.__exit__(None, None, None)
        return first == ["init"] * 30

    until(all_again)


