"""The log of the web part: one JSON object a line, and no secret of any request in it (A64, RELIABILITY 6.5.5)."""

from __future__ import annotations

import json
import logging
import sys
import time
import uuid

import pytest
from django.conf import settings as site
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils.log import configure_logging

from jobs.logs import Lines, Stderr
from jobs.redaction import redacted, without_queries
from tests.edges.caller import Caller


@pytest.fixture(autouse=True)
def _logging():
    """As the settings say; other tests may have changed levels."""
    root = logging.getLogger()
    before = list(root.handlers)
    configure_logging(site.LOGGING_CONFIG, site.LOGGING)
    for handler in before:
        if handler not in root.handlers and not isinstance(handler, Stderr):
            root.addHandler(handler)


def lines(capsys) -> list[dict]:
    """What was logged, each line one object with an event."""
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(isinstance(line["event"], str) and line["at"].endswith("Z") for line in found)
    return found


def test_each_request_is_one_line(database, capsys):
    """Method, path without its query, status, milliseconds, id, and who: the prefix of a key, or a person."""
    caller = Caller()
    capsys.readouterr()
    caller.get("/jobs?limit=3", X_Request_ID="one")
    [line] = lines(capsys)
    assert line.items() >= {"event": "request", "method": "GET", "path": "/api/v1/jobs", "status": 200,
                            "request_id": "one", "key": caller.key.prefix, "level": "INFO"}.items()
    assert 0 <= line["ms"] < 60_000
    user = get_user_model().objects.create_superuser(f"op-{uuid.uuid4().hex[:8]}", password="x")
    visitor = Client()
    visitor.force_login(user)
    visitor.get("/workers/")
    [line] = lines(capsys)
    assert (line["user"], line["path"]) == (user.get_username(), "/workers/")
    user.delete()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/static/jobs/jobsite.css"])
def test_what_is_asked_all_the_time_is_no_news(database, capsys, path):
    """Probes and files are of level DEBUG, unless they fail."""
    assert Client().get(path).status_code == 200
    assert lines(capsys) == []
    logging.getLogger().setLevel(logging.DEBUG)
    Client().get(path)
    assert [line["path"] for line in lines(capsys) if line["event"] == "request"] == [path]


def test_no_secret_of_a_request_reaches_the_log(database, capsys):
    """21 canaries: in headers, cookies, queries, bodies, forms, wrong logins, refused referrers; faults included."""
    canaries = [f"canary{uuid.uuid4().hex}" for _ in range(21)]
    left = iter(canaries)
    caller, visitor = Caller(), Client(raise_request_exception=False, enforce_csrf_checks=True)
    logging.getLogger().setLevel(logging.DEBUG)
    for header in ("Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization", "X-Tenant-Subject"):
        visitor.get("/api/v1/jobs", headers={header: f"Bearer {next(left)}.{next(left)}"})
    visitor.get(f"/jobs/?token={next(left)}&cursor={next(left)}")
    visitor.get(f"/nothing?password={next(left)}")
    caller.get(f"/jobs?cursor={next(left)}")
    caller.post("/jobs", {"type": "outside", "input": {"password": next(left)}})
    caller.post("/jobs", {"type": "nothing", "api_key": next(left)})
    caller.send("POST", "/jobs", raw=b"{" + next(left).encode())
    visitor.post("/login/", {"username": "x", "password": next(left)})
    visitor.post("/login/", {"csrfmiddlewaretoken": next(left)}, secure=True, headers={
        "Referer": f"https://elsewhere.example/a?session={next(left)}"})
    visitor.get("/", headers={"Host": "evil.example"}, query_params={"q": next(left)})
    assert list(left) == []
    logging.getLogger("myshop").warning("went to https://shop.example/cart?key=%s", canaries[0], extra={
        "api_key": canaries[1], "deep": {"Set-Cookie": canaries[2], "list": [{"accessKey": canaries[3]}]}})
    said = capsys.readouterr().err
    assert said.count('"event": "request"') >= 14
    assert [line for line in said.splitlines() if any(name in line for name in canaries)] == []
    assert caller.secret not in said
    assert caller.secret.partition(".")[2] not in said


def test_a_line_is_a_line_whatever_is_said(capsys):
    """RELIABILITY, log injection: line ends and controls are escaped; long text is cut, a traceback in its middle."""
    log = logging.getLogger("myshop")
    log.error("a\r\n{\"event\": \"forged\"}\x1b[31m\u2028b", extra={"why": "x" * 5_000, "event": "shelf.empty"})
    [line] = lines(capsys)
    assert line["event"] == "shelf.empty"
    assert len(line["why"]) == 2_000
    try:
        raise ValueError("y" * 9_000 + " the end")
    except ValueError:
        log.exception("broken")
    [line] = lines(capsys)
    assert len(line["exception"]) == 2_000
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith(" the end")


def test_text_that_is_no_unicode_is_a_line_all_the_same():
    """Half of a surrogate pair, as files' names may hold; captured by no handler of the test run, which could not."""
    made = logging.makeLogRecord({"name": "myshop", "levelname": "ERROR", "msg": "b \ud800"})
    for form in ("json", "text"):
        assert "\\ud800" in Lines(form).format(made).encode().decode()


def test_people_get_words():
    """LOG_FORMAT=text, and a terminal: one line each but for a traceback, and what the message says is not repeated."""
    made = logging.makeLogRecord({"name": "jobs.requests", "levelno": 20, "levelname": "INFO",
                                  "msg": "GET / 200\x1b[0m", "event": "request", "path": "/", "method": "GET",
                                  "status": 200, "ms": 3.1, "token": "t"})
    said = Lines("text").format(made)
    assert said[10:] == "INFO     jobs.requests: GET / 200\\x1b[0m ms=3.1 token=[redacted]"
    assert json.loads(Lines("json").format(made))["message"] == "GET / 200\x1b[0m"


@pytest.mark.parametrize("name", ["Authorization", "HTTP_COOKIE", "password2", "client-secret", "csrfToken",
                                  "sessionid", "api_key", "Api-Key", "apiKey", "ACCESS_KEY", "aws.access-key"])
def test_a_value_is_left_out_by_its_name(name):
    """A64: whatever its type, at any depth, however the name is written."""
    assert redacted({"a": [{name: {"b": 1}}]}) == {"a": [{name: "[redacted]"}]}
    assert redacted([1], name) == "[redacted]"


def test_other_values_stay_what_they_are():
    """Only text is cut, and what lies too deep left out; the value itself is not touched."""
    value = {"key": "k", "n": 1.5, "none": None, "text": "x" * 3_000, "list": [True, {"a": "b"}]}
    assert redacted(value) == {**value, "text": "x" * 2_000}
    assert redacted(value, limit=5_000) == value
    deep: object = "end"
    for _ in range(50):
        deep = [deep]
    assert "end" not in json.dumps(redacted(deep))
    assert without_queries("see http://a.example/b?c=d#e, (https://f/?g) or h?i") == \
        "see http://a.example/b (https://f/ or h?i"


def test_a_line_costs_its_length_and_no_more():
    """Anybody's path and any job's error is in one: what looks like very many addresses must hold no process up."""
    began = time.perf_counter()
    for text in ("a://" * 250_000, "a://b?" * 170_000, "a:/" * 330_000, "?" * 1_000_000):
        assert len(without_queries(text)) <= 1_000_000
    assert without_queries("a://" * 3 + "b?c") == "a://" * 3 + "b"
    assert time.perf_counter() - began < 10


def test_an_exception_for_people_commands_no_terminal():
    """Its message may be a caller's text: escapes and carriage returns are shown, not obeyed."""
    try:
        raise ValueError("red \x1b[31m\rforged \x9b")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "broken", (), sys.exc_info())
    line = Lines("text").format(record)
    assert "ValueError: red \\x1b[31m\\rforged \\x9b" in line
    assert all(part.isprintable() for part in line.split("\n"))
