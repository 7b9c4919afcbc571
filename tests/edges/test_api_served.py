"""The API as a real server answers it: daphne in a process of its own, plain HTTP clients outside of Django."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from django.db import connection

from jobs.models import Job, Receipt
from tests import database as db
from tests import warm
from tests.driver import check
from tests.edges.caller import Caller


class Site:
    """A running server, and requests to it."""

    def __init__(self, port: int, caller: Caller) -> None:
        self.port, self.caller = port, caller

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the JSON that must be there."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1{path}", method=method, data=data,
            headers={"Authorization": f"Bearer {self.caller.secret}", "Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.loads(error.read())

    def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        return self.send("POST", path, {} if body is None else body, **headers)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(server: warm.Process, port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert server.poll() is None, "the server ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not come up")


@pytest.fixture
def site(database, tmp_path):
    """The site, served; what it logs stays in the test's folder."""
    port = _free_port()
    env = {**os.environ, "JOBS_POLL_S": "0.1"}
    name = str(connection.settings_dict["NAME"])
    with (tmp_path / "served.log").open("w") as log:
        server = warm.start(["-m", "tests.edges.served", str(port), name], env, stdout=log, stderr=subprocess.STDOUT)
    try:
        _await(server, port)
        yield Site(port, Caller())
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def test_a_runner_over_real_http_does_a_job_from_end_to_end(site):
    """C3, C31, C33, C38: enqueue, claim, heartbeat with checkpoint, complete, repeat, read."""
    asked, key = {"type": "outside", "input": {"text": "Zoë"}}, {"Idempotency-Key": "k"}
    status, headers, made = site.post("/jobs", asked, **key)
    assert (status, headers["Cache-Control"]) == (202, "no-store")
    assert site.post("/jobs", asked, **key)[0] == 200
    assert site.post("/jobs", {**asked, "input": {}}, **key)[0] == 422
    held = site.post("/runtime/claim", {"wait_seconds": 5})[2]["assignments"][0]
    assert held["job"]["input"] == {"text": "Zoë"}
    at = f"/assignments/{held['assignment_id']}"
    assert site.post(f"{at}/extend", {"checkpoint": {"seq": 1}})[2]["checkpoint_number"] == 1
    assert site.post(f"{at}/complete", {"artifact": {"done": True}})[2]["repeated"] is False
    assert site.post(f"{at}/complete", {"artifact": {"done": True}})[2]["repeated"] is True
    status, _, told = site.post(f"{at}/fail", {"reason_code": "late"})
    assert (status, told["code"], told["job_status"]) == (409, "stale_claim", "completed")
    status, headers, told = site.send("GET", f"/jobs/{made['id']}")
    assert (told["result_envelope"]["artifact"], headers["ETag"]) == ({"done": True}, f'"r{told["revision"]}"')
    check(made["id"])


def test_refusals_over_real_http_are_problems(site):
    """E2: 400, 401, 404, 405, 413, 415; a body without Content-Length is read all the same."""
    for (method, path, body, headers), status in (
        (("POST", "/jobs", {"type": "outside", "x": 1}, {}), 400),
        (("GET", "/jobs", None, {"Authorization": "Bearer a.b"}), 401),
        (("GET", "/nothing", None, {}), 404), (("GET", "/jobs/%00", None, {}), 404), (("PUT", "/jobs", {}, {}), 405),
        (("POST", "/jobs", {"type": "outside", "input": {"x": "y" * 1_100_000}}, {}), 413),
        (("POST", "/jobs", {"type": "outside"}, {"Content-Type": "text/plain"}), 415),
    ):
        got, told_headers, told = site.send(method, path, body, **headers)
        assert (got, told["status"], told_headers["Content-Type"]) == (status, status, "application/problem+json"), path
    assert Job.objects.count() == 0
    for body, status in ((b'{"type": "outside"}', 202), (b'{"type": "outside", "input": {"x": "\\u0000"}}', 400),
                         (b" " * 1_100_000, 413)):
        client = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
        client.request("POST", "/api/v1/jobs", iter([body[:10], body[10:]]), encode_chunked=True, headers={
            "Authorization": f"Bearer {site.caller.secret}", "Content-Type": "application/json",
            "Transfer-Encoding": "chunked"})
        assert client.getresponse().status == status
        client.close()
    assert Job.objects.count() == 1


def _in_transaction() -> int:
    time.sleep(0.05)
    return db.rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                   " AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'")[0][0]


def test_one_job_wakes_one_of_many_waiting_runners_and_they_hold_no_connections(site):
    """case-C07, C31, E14.1, DESIGN 5: nothing is held while waiting."""
    found: list[Any] = []

    def wait() -> None:
        found.append(site.post("/runtime/claim", {"wait_seconds": 4})[2]["assignments"])

    runners = [threading.Thread(target=wait) for _ in range(8)]
    for runner in runners:
        runner.start()
    time.sleep(1.5)
    assert max(_in_transaction() for _ in range(5)) <= 2
    made = site.post("/jobs", {"type": "outside"})[2]
    for runner in runners:
        runner.join()
    assert [a[0]["job"]["id"] for a in found if a] == [made["id"]]
    assert len(found) == 8
    assert Receipt.objects.filter(job_id=made["id"]).count() == 2
