"""No secret that this site was given or has issued lies in its database or in its logs (RELIABILITY 6.2, 6.5.5)."""

from __future__ import annotations

import base64
import http.client
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import get_user_model

from jobs.models import Delivery, Job, Key, Timer
from jobs.services import grants
from lanes.models import Lane
from tests.database import rows
from tests.edges.test_api_served import site as site
from tests.owned import SECRET, STORE
from tests.sinks import Sink
from tests.worker.conftest import workers as workers
from tests.worker.processes import DEFINITIONS, REPOSITORY, environment, until

PASSWORD, WRONG = f"right-{uuid.uuid4().hex}", f"wrong-{uuid.uuid4().hex}"
TOKEN, SCRAPER, SITE_KEY = (f"{name}-{uuid.uuid4().hex}" for name in ("callback", "metrics", "site-key"))
IN_A_URL = f"hook-{uuid.uuid4().hex}"


@pytest.fixture
def told(database, tmp_path, settings, monkeypatch) -> Iterator[tuple[dict[str, str], Sink]]:
    """A site that has every secret that a site can have, as its processes are told of it, and who hears of its jobs."""
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "first").write_text(SECRET)
    with Sink() as sink:
        said = {"JOBS_DEFINITIONS": f"{DEFINITIONS},tests.owned", "JOBS_CREDENTIAL_RESOLVER": "tests.owned.resolve",
                STORE: str(tmp_path / "vault"), "CALLBACK_URL": f"http://127.0.0.1:{sink.port}/all",
                "CALLBACK_TOKEN": TOKEN, "CALLBACK_HTTP": "on", "CALLBACK_ALLOW": f"127.0.0.1:{sink.port}",
                "METRICS_TOKEN": SCRAPER, "SECRET_KEY": SITE_KEY, "ALLOWED_HOSTS": "127.0.0.1",
                "SECURE_SSL_REDIRECT": "off", "BEHIND_PROXY": "on", "LOG_LEVEL": "DEBUG", "LOG_FORMAT": "json"}
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        yield said, sink


class Browser:
    """Somebody at the console, through a proxy that speaks HTTPS, as far as cookies and forms go."""

    def __init__(self, port: int) -> None:
        self.port, self.cookies = port, {}

    def ask(self, method: str, path: str, form: dict[str, Any] | None = None,
            **headers: str) -> tuple[int, str]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        told = {"X-Forwarded-Proto": "https", "Referer": f"https://127.0.0.1:{self.port}/",
                "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
                **{name.replace("_", "-"): value for name, value in headers.items()}}
        body = None
        if form is not None:
            token = self.cookies.get(next((n for n in self.cookies if "csrf" in n), ""), "")
            body = urlencode({"csrfmiddlewaretoken": token, **form}, doseq=True)
            told["Content-Type"] = "application/x-www-form-urlencoded"
        line.request(method, path, body, told)
        answer = line.getresponse()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        text = answer.read().decode()
        line.close()
        return answer.status, text


def command(*arguments: str, env: dict[str, str]) -> tuple[str, str]:
    """What a command says to its caller, and what it logs."""
    done = subprocess.run([sys.executable, "manage.py", *arguments], cwd=REPOSITORY, env=env, text=True,
                          capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def tool(port: int, key: str, name: str, arguments: dict[str, Any]) -> int:
    """How a call of a tool over HTTP is answered."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": name, "arguments": arguments}}), {"Content-Type": "application/json", "Accept": "application/json",
                                                  "Authorization": f"Bearer {key}", "X-Forwarded-Proto": "https"})
    answer = line.getresponse()
    answer.read()
    line.close()
    return answer.status


def forms(secret: str) -> list[str]:
    """A secret in each way in which a column or a line could hold it."""
    raw = secret.encode()
    found = [secret, raw.hex(), base64.b64encode(raw).decode().rstrip("="), json.dumps(secret)[1:-1]]
    if secret.startswith("whsec_"):
        found += [secret.removeprefix("whsec_"), base64.b64decode(secret.removeprefix("whsec_")).hex()]
    return found


def dump() -> dict[str, str]:
    """Every row of every table, as text; binary columns in hexadecimal."""
    tables = [name for name, in rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    return {name: "\n".join(row for row, in rows(f'SELECT t::text FROM "{name}" t')) for name in tables}


def test_no_secret_is_in_a_row_or_in_a_line_after_a_run_through_every_door(told, workers, request, tmp_path) -> None:
    """6.2 "Token theft", 6.5.5: keys of each kind, owners' and callbacks' secrets, tokens, passwords, the site's key.

    They are used rightly and wrongly, over the web part, a worker and the commands, which log all that they can.
    """
    said, sink = told
    env = environment(**said)
    keys, spoken = {}, []
    rights = ("enqueue", "read", "control", "callbacks", "owners", "timers", "lanes")
    for kind, flags in {"workspace": [f"--permission={name}" for name in rights],
                        "tenant": ["--tenant", "acme"], "runner": ["--kind", "runner"],
                        "planner": ["--kind", "planner"]}.items():
        keys[kind], log = command("keys", "create", kind, *flags, env=env)
        spoken.append(log)
    spoken.append(command("owners", "put", "first", env=env)[1])
    signed, log = command("callbacks", "secret-new", env=env)
    spoken.append(log)
    issued = [*(key.partition(".")[2] for key in keys.values()), signed, SECRET, "s3cr3t", TOKEN, SCRAPER, SITE_KEY,
              PASSWORD, WRONG]

    served = request.getfixturevalue("site")

    def send(method: str, path: str, body: Any = None, key: str = "workspace", **headers: str) -> tuple[int, Any]:
        status, _, answer = served.send(method, path, body, **{"Authorization": f"Bearer {keys[key]}",
                                                              "X-Forwarded-Proto": "https", **headers})
        return status, answer

    get_user_model().objects.filter(username="keeper-of-keys").delete()
    person = get_user_model().objects.create_superuser("keeper-of-keys", password=PASSWORD)
    try:
        browser = Browser(served.port)
        browser.ask("GET", "/login/")
        assert browser.ask("POST", "/login/", {"username": "keeper-of-keys", "password": WRONG})[0] == 200
        assert browser.ask("POST", "/login/", {"username": "keeper-of-keys", "password": PASSWORD})[0] == 302
        assert browser.ask("GET", "/admin/jobs/key/add/")[0] == 200
        status, page = browser.ask("POST", "/admin/jobs/key/add/", {
            "name": "by hand", "workspace": "default", "permissions": ["read"]})
        assert status == 200
        keys["by hand"] = re.search(r'id="secret">([^<]+)<', page)[1]
        issued.append(keys["by hand"].partition(".")[2])
        session = next(value for name, value in browser.cookies.items() if "session" in name)

        status, made = send("POST", "/callback-secrets", {"rotate": True})
        assert status == 201
        issued.append(made["secret"])
        jobs = [send("POST", "/jobs", {"type": type_, "input": input_, **more})[1]["id"] for type_, input_, more in (
            ("owned-thread", {"how": "log"}, {}), ("owned-thread", {"how": "raise"}, {}),
            ("owned-thread", {"how": "artifact"}, {}), ("echo", {}, {"callback_url":
                f"http://127.0.0.1:{sink.port}/own?token={IN_A_URL}"}))]
        assert send("POST", "/jobs", {"type": "owned-shared"}, Idempotency_Key="k")[0] == 202
        told_of = {"callback_url": f"http://127.0.0.1:{sink.port}/own?token={IN_A_URL}"}
        assert send("PUT", "/timers/nightly", {"type": "echo", "every_s": 86_400, "options": told_of})[0] == 201
        jobs.append(send("POST", "/timers/nightly/run", {"reason": "by hand"})[1]["job"])
        page = browser.ask("GET", f"/timers/{Timer.objects.get(name='nightly').pk}/")
        assert (page[0], f"http://127.0.0.1:{sink.port}/..." in page[1], IN_A_URL in page[1]) == (200, True, False)
        prefix = keys["workspace"].partition(".")[0]
        conductor = Key.objects.get(prefix=prefix)
        grants.give(conductor.workspace, "conductor", by="test", key=conductor)
        status, quorum = send("POST", "/quorums", {"name": "search"})
        assert status == 201
        lane = {"quorum": quorum["id"], "name": "parser", "branch": "parser", "task": "7", "assignee": f"key:{prefix}"}
        for key in ("workspace", "runner"):
            for said_key, status in ((keys[key], 200), (f"{keys[key]}x", 401)):
                assert tool(served.port, said_key, "lane_create", lane) == status
        assert Lane.objects.count() == 1
        spoken.append(command("mcp", env={**env, "JOBSITE_KEY": keys["workspace"]})[1])
        status, claimed = send("POST", "/runtime/claim", {"slots": 1}, key="runner")
        assert claimed["assignments"][0]["credential"] == SECRET
        held = claimed["assignments"][0]["assignment_id"]
        assert send("POST", f"/assignments/{held}/complete", {"artifact": {"plain": 1}}, key="runner")[0] == 200
        for key in keys:
            send("GET", "/jobs", key=key)
            send("GET", f"/jobs?api_key={keys[key]}", key=key)
            send("POST", "/jobs", {"type": "nothing", keys[key]: keys[key]}, key=key)
            send("GET", "/jobs", Authorization=f"Bearer {keys[key]}x", key=key)
            send("GET", "/jobs", Authorization=f"Basic {keys[key]}", key=key)
        assert browser.ask("GET", "/metrics", Authorization=f"Bearer {SCRAPER}")[0] == 200
        assert browser.ask("GET", "/metrics", Authorization=f"Bearer {SCRAPER}x")[0] in (401, 403)
        spoken.append(command("jobs", "list", env=env)[1])

        worker = workers(env={**said, "DEBUG": "off"})
        until(lambda: not Job.objects.filter(pk__in=jobs, ended_at=None).exists(), 60)
        until(lambda: {"/own", "/all"} <= {got.line.split()[1].partition("?")[0] for got in list(sink.got)}, 60)
        until(lambda: not Delivery.objects.filter(state="pending").exists(), 60)
        worker.stop()
        assert any(got.headers.get("authorization") == f"Bearer {TOKEN}" for got in sink.got)
        assert all("webhook-signature" in got.headers for got in sink.got)
        tables = dump()
    finally:
        person.delete()
    logs = "\n".join([(tmp_path / "served.log").read_text(), worker.log, repr(worker.lines), *worker.plain, *spoken])

    # What must be there is, so that what must not would be found.
    assert Key.objects.count() >= len(keys)
    for name in keys.values():
        assert name.partition(".")[0] in tables["jobs_key"]
        assert name.partition(".")[0] in logs
    assert '"event": "request"' in logs
    assert IN_A_URL in tables["jobs_job"]
    assert len(issued) == len(set(issued)) == 14
    for secret in issued:
        for form in forms(secret):
            assert form not in logs, secret
            assert [name for name, text in tables.items() if form in text] == [], secret
    # An address is kept where it is needed and nowhere else; a login is Django's row, and ends there.
    for name in (IN_A_URL, session):
        assert name not in logs
    assert {name for name, text in tables.items() if IN_A_URL in text} == {"jobs_job", "jobs_timer"}
    assert [name for name, text in tables.items() if session in text] == ["django_session"]
