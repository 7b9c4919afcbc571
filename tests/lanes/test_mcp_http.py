"""`/mcp` as a real server answers it: daphne, the SDK's own client, and clients that are up to something."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.db import connection

from jobs.models import Attempt, Job
from jobs.services import keys
from tests import database as db
from tests.driver import Driver, check
from tests.edges.caller import Caller
from tests.edges.test_api_served import _await, _free_port
from tests.lanes.talking import over_http
from tests.worker.processes import until

# One server for all of them; the first test begins it, the last one ends it.
pytestmark = pytest.mark.xdist_group("mcp_http")
SAFE = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"}
ERA = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": ERA, "io.modelcontextprotocol/clientCapabilities": {}}


class Served(NamedTuple):
    """A running server, and what it logs."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    def ask(self, body: Any = None, method: str = "POST", **headers: str | None) -> tuple[int, Any, bytes]:
        """A plain request: status, headers and body."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                **{name.replace("_", "-"): value for name, value in headers.items()}}
        line.request(method, "/mcp", raw, {name: value for name, value in said.items() if value is not None})
        answer = line.getresponse()
        told = answer.status, answer.headers, answer.read()
        line.close()
        return told


@pytest.fixture(scope="module")
def served(django_db_setup: Any, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of this module."""
    port, log = _free_port(), tmp_path_factory.mktemp("mcp") / "served.log"
    name = str(connection.settings_dict["NAME"])
    with log.open("w") as held:
        process = subprocess.Popen([sys.executable, "-m", "tests.edges.served", str(port), name], stdout=held,
                                   stderr=subprocess.STDOUT, env={**os.environ, "JOBS_POLL_S": "0.2"})
    try:
        _await(process, port)
        yield Served(port, log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture
def api(driver: Driver, served: Served) -> Caller:
    """A workspace key with every permission."""
    return Caller()


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """A call of the latest era, as it stands in a body."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": META}}


def bearer(caller: Caller, tool: str = "job_claim") -> dict[str, str]:
    """What such a call says in its headers."""
    return {"Authorization": f"Bearer {caller.secret}", "MCP_Protocol_Version": ERA, "Mcp_Method": "tools/call",
            "Mcp_Name": tool}


def test_the_first_callers_start_one_server_together(api: Caller, served: Served) -> None:
    """Daphne tells nobody that it begins: all who come meanwhile wait for the same."""
    with ThreadPoolExecutor(8) as threads:
        first = list(threads.map(lambda _: served.ask(call("job_claim"), **bearer(api)), range(8)))
    assert [answer[0] for answer in first] == [200] * 8
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_does_a_job_from_end_to_end(api: Caller, served: Served, mode: str) -> None:
    """D1 to D5, D14: over HTTP, in both eras of the protocol; a claim that waits is woken by the job."""
    with over_http(served.port, api.secret, mode) as talk:
        assert {"job_create", "job_claim", "lane_list"} <= set(talk.tools())
        waiting = talk.begin("job_claim", wait_seconds=20)
        made = talk.good("job_create", type="outside", input={"text": "Zoë"})
        [one] = waiting.result(60).structured_content["assignments"]
        assert one["job"]["input"] == {"text": "Zoë"}
        name = one["assignment_id"]
        assert talk.good("job_extend", assignment_id=name)["abort"] is None
        for repeated in (False, True):
            assert talk.good("job_complete", assignment_id=name, artifact={"n": 1})["repeated"] is repeated
        told = talk.refused("job_release", "stale_claim", assignment_id=name)
        assert re.fullmatch(r"[0-9a-f]{32}", told["request_id"])
        assert told["request_id"] in served.log.read_text()
    check(made["id"])


def test_two_clients_that_race_for_jobs_never_share_one(api: Caller, served: Served, driver: Driver) -> None:
    """D3: a single winner each time, and none is lost."""
    other = Caller("other")
    made = {driver.enqueue("outside") for _ in range(24)}
    with over_http(served.port, api.secret) as one, over_http(served.port, other.secret) as two, \
            ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda n: (one, two)[n % 2].good("job_claim"), range(24)))
        won = [job["job"]["id"] for answer in answers for job in answer["assignments"]]
        assert one.good("job_claim")["assignments"] == two.good("job_claim")["assignments"] == []
    assert sorted(won) == sorted(made)
    assert Attempt.objects.count() == 24


# --- who may ---------------------------------------------------------------------------------------------------------


def test_a_request_is_refused_before_the_protocol_is_spoken(api: Caller, served: Served) -> None:
    """C25, RELIABILITY 6.2: keys, origins, hosts, methods and bodies as at the API, as problems with an id."""
    mine = bearer(api)
    own, body = f"http://127.0.0.1:{served.port}", call("job_claim")
    for what, status, code, headers in (
        (body, 401, "unauthenticated", {**mine, "Authorization": None}),
        (body, 401, "unauthenticated", {**mine, "Authorization": "Bearer a.b"}),
        (body, 401, "unauthenticated", {**mine, "Authorization": api.secret}),
        (body, 401, "unauthenticated", {**mine, "Authorization": None, "Cookie": "sessionid=x"}),
        (body, 403, "foreign_origin", {**mine, "Origin": "http://evil.example"}),
        (body, 403, "foreign_origin", {**mine, "Origin": "null"}),
        (body, 403, "foreign_origin", {**mine, "Origin": "http://127.0.0.1:1"}),
        (body, 403, "foreign_origin", {**mine, "Origin": "http://[evil"}),
        (body, 400, "bad_request", {**mine, "Host": "rebound.example"}),
        (body, 404, "workspace_not_found", {**mine, "X_Workspace": "elsewhere"}),
        (body, 400, "invalid_tenant_subject", {**mine, "X_Tenant_Subject": "acme"}),
        (body, 415, "unsupported_media_type", {**mine, "Content_Type": "text/plain"}),
        (body, 415, "unsupported_media_type", {**mine, "Content_Encoding": "gzip"}),
        (json.dumps(body).encode().replace(b'"name":', b'"name": "job_create", "name":'), 400, "duplicate_key", mine),
    ):
        got, told, raw = served.ask(what, X_Request_ID="mine", **headers)
        problem = json.loads(raw)
        assert (got, problem["code"], problem["request_id"]) == (status, code, "mine"), headers
        assert told["Content-Type"] == "application/problem+json"
        assert told["Cache-Control"] == "no-store"
        assert SAFE.items() <= dict(told.items()).items()
        assert (told["WWW-Authenticate"] == 'Bearer realm="jobs"') is (status == 401)
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        got, told, raw = served.ask(b"", method, **mine)
        assert (got, told["Allow"], json.loads(raw)["code"]) == (405, "POST", "method_not_allowed")
    got, told, raw = served.ask(b"x" * 1_200_000, **mine)
    assert (got, json.loads(raw)["code"]) == (413, "too_large")
    got, told, raw = served.ask(body, Origin=own, **mine)
    assert (got, json.loads(raw)["result"]["structuredContent"]) == (200, {"assignments": [], "again": False})
    assert SAFE.items() <= dict(told.items()).items()
    assert "Mcp-Session-Id" not in told
    assert "Set-Cookie" not in told


def test_a_key_that_is_revoked_is_over_in_the_middle_of_a_session(api: Caller, served: Served) -> None:
    """C25: there is no session that could outlive it; a session's name that somebody sends means nothing."""
    with over_http(served.port, api.secret, "legacy") as talk:
        assert talk.good("job_claim")["assignments"] == []
        got, _, raw = served.ask(call("job_claim"), **bearer(api), Mcp_Session_Id="0" * 32)
        assert (got, "assignments" in json.loads(raw)["result"]["structuredContent"]) == (200, True)
        keys.revoke(api.key.prefix)
        until(lambda: served.ask(call("job_claim"), **bearer(api))[0] == 401)
        with pytest.raises(Exception, match=r"(?i)40[01]|unauth|terminated|error"):
            talk.said("job_create", type="outside")
    assert Job.objects.count() == 0


def test_a_key_makes_no_more_requests_than_it_may(driver: Driver, served: Served) -> None:
    """C37: the bucket of the API's requests, told by the same headers."""
    caller = Caller()
    keys.limit(caller.key.prefix, requests_per_s=1, request_burst=3)
    answers = [served.ask(call("job_claim"), **bearer(caller)) for _ in range(5)]
    assert answers[0][0] == 200
    assert answers[0][1]["RateLimit-Policy"] == '"key";q=3;w=3'
    got, told, raw = answers[-1]
    assert (got, json.loads(raw)["code"], told["Retry-After"]) == (429, "rate_limited", "1")


# --- clients that are up to something --------------------------------------------------------------------------------


def test_hostile_bodies_get_the_protocols_own_refusal_and_no_traceback(api: Caller, served: Served) -> None:
    """RELIABILITY 5.7: what is no message, and arguments beyond the limits of the API's JSON."""
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    start = (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"job_create",'
             b'"arguments":{"type":"outside","x":')
    meta = b'},"_meta":' + json.dumps(META).encode() + b"}}"
    for body in (b"", b"{", b"[]", b"null", b"[" * 50_000, b"\xff\xfe", b'{"jsonrpc":"2.0"}', b"{}" * 9,
                 start + deep + meta, start + b"NaN" + meta, start + b"1" + b"0" * 5_000 + meta,
                 start + b'"\\ud800"' + meta, start + b'"\\u0000"' + meta, start + b"[]" * 3 + meta):
        for headers in (bearer(api, "job_create"), {"Authorization": f"Bearer {api.secret}"}):
            got, _, raw = served.ask(body, **headers)
            told = json.loads(raw)
            assert got in (200, 400), (body[:60], raw[:200])
            assert "error" in told or told["result"]["isError"], (body[:60], raw[:200])
            assert b"Traceback" not in raw
            assert len(raw) < 5_000
    assert Job.objects.count() == 0
    with over_http(served.port, api.secret) as talk:
        assert talk.good("job_claim")["assignments"] == []
    assert "Traceback" not in served.log.read_text()


def begun(port: int, headers: dict[str, str]) -> socket.socket:
    """A claim that waits, on a socket of its own."""
    body = json.dumps(call("job_claim", wait_seconds=20)).encode()
    said = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Accept": "application/json",
            "Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    line = socket.create_connection(("127.0.0.1", port), timeout=60)
    line.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    return line


def test_those_who_wait_hold_no_thread_and_no_connection(api: Caller, served: Served, driver: Driver) -> None:
    """C31, 6.2: however many; what all of them share stays the same."""
    waiting = [begun(served.port, bearer(api)) for _ in range(60)]
    try:
        # The last one has been heard, and each of them has looked for itself.
        assert served.ask(call("job_claim"), **bearer(api))[0] == 200
        full = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
        until(lambda: db.rows(full)[0][0] == 1)
        threads = re.search(r"Threads:\s+(\d+)", Path(f"/proc/{served.process.pid}/status").read_text())
        assert threads is not None
        assert int(threads[1]) < 40
        driver.enqueue("outside")
        until(lambda: Attempt.objects.count() == 1)
    finally:
        for line in waiting:
            line.close()


def test_a_client_that_hangs_up_while_it_waits_takes_no_job_along(api: Caller, served: Served, driver: Driver) -> None:
    """D3, E8, case-H05: in both eras; what is claimed for it is given back."""
    for headers in (bearer(api), {"Authorization": f"Bearer {api.secret}", "MCP_Protocol_Version": "2025-06-18"}):
        gone = begun(served.port, headers)
        # It has been heard once another one is answered.
        assert served.ask(call("job_claim"), **bearer(api))[0] == 200
        gone.close()
        job = driver.enqueue("outside")
        other = Caller("other")
        with over_http(served.port, other.secret) as talk:
            found: list[Any] = []
            until(lambda found=found: found.extend(talk.good("job_claim", wait_seconds=2)["assignments"]) or found, 30)
        assert found[0]["job"]["id"] == job
        driver.cancel(job)


def test_told_to_stop_it_lets_who_waits_go_and_ends_in_order(api: Caller, served: Served) -> None:
    """The last one here: the SDK's own tasks end with the server."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(served.ask, call("job_claim", wait_seconds=20), **bearer(api))
        served.ask(call("job_claim"), **bearer(api))
        served.process.send_signal(signal.SIGTERM)
        got, _, raw = waiting.result(30)
        assert (got, json.loads(raw)["result"]["structuredContent"]["assignments"]) == (200, [])
    assert served.process.wait(20) == 0
    log = served.log.read_text()
    assert "Traceback" not in log
    assert "was destroyed" not in log
