"""Hostile input on every body and every field: never a 5xx, never HTML, never a row, the same answer twice (B8)."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from django.urls import resolve

from jobs.logs import Lines
from jobs.models import Job, Receipt
from tests.edges.caller import ATTESTED, everything, problem
from tests.races.threads import LONG

LIMIT = 1024 * 1024


def nested(depth: int, left: str = "[", right: str = "]") -> str:
    return left * depth + right * depth


# Texts of JSON values that stand where a field's value should.
VALUES = {
    "nul": r'"a\u0000b"', "nul_key": r'{"a\u0000": 1}', "lone_surrogate": r'"\ud800"', "lone_low": r'"x\udfff"',
    "surrogate_key": r'{"\ud83d": 1}', "nan": "NaN", "infinity": "-Infinity", "overflow": "1e400",
    "huge_int": "9" * 5_000,
    "big_int": str(2**63), "unsafe_int": str(2**53), "huge_float": "1e131000", "long_float": "0." + "1" * 5_000,
    "deep": nested(65), "deeper": nested(1_000), "deepest": nested(20_000),
    "deep_object": '{"a":' * 900 + "1" + "}" * 900,
    "duplicate": '{"a": 1, "a": 2}', "minus_zero": "-0", "true": "true", "null": "null", "zero": "0", "negative": "-5",
    "fraction": "1.5", "float": "1e308", "text_number": '"5"', "empty": '""', "long": '"' + "x" * 5_000 + '"',
    "list": "[]",
    "object": "{}", "proto": '{"__proto__": {"x": 1}}', "controls": r'"a\u0001\n\t"', "del": '"\\u007f"',
    "nfd": '"e\u0301"',
    "emoji": '"\U0001f600"', "rtl": '"\u202e"', "separator": '"\u2028"', "quote": '"\\"; DROP TABLE jobs_job; --"',
    "null_mark": '"\\\\N"', "one": r'"\u0001"', "newline": r'"a\nb"', "percent": '"%s%(x)s%"',
    "uuid": '"00000000-0000-0000-0000-000000000000"',
    "naive": '"2030-01-01T00:00:00"', "year_zero": '"0000-01-01T00:00:00Z"', "far": '"9999-12-31T23:59:59.999999999Z"',
    "leap": '"2016-12-31T23:59:60Z"', "offset": '"2030-01-01T00:00:00+24:00"', "lists": "[[],{},null]",
    "numbers": "[1,2,3]",
    "texts": '["a","b"]', "bare": "nonsense", "trailing": "1 2", "comment": "1 /* x */", "single": "'x'",
    "comma": "[1,]",
    # Numbers that are equal and are not the same, and spans and counts at their edges.
    "one_number": "1", "one_float": "1.0", "minus_zero_float": "-0.0", "exponent": "1e2", "plus": "+1", "leading": "01",
    "hex": "0x10", "under": "1_000", "day": "86400", "day_and_one": "86401", "int_32": "2147483648",
    "safe_int": str(2**53 - 1), "tiny": "1e-320", "twenty_one": "21", "billion": "1000000000", "minus_fraction": "-0.5",
    "false": "false", "nothing": '"null"',
    # Texts at the lengths of columns, and marks that look like others.
    "length_200": '"' + "k" * 200 + '"', "length_201": '"' + "k" * 201 + '"', "length_513": '"' + "k" * 513 + '"',
    "accent": '"\u00e9"', "nfc": '"\u00e9t\u00e9"', "bom_inside": '"\ufeffx"', "tab": r'"a\tb"', "crlf": r'"a\r\nb"',
    "escape": r'"\u001b[31m"', "space": '" "', "zero_width": '"\u200b"', "private": '"\ue000"',
    "noncharacter": '"\ufffe"',
    "dots": '"../../etc/passwd"', "dunder": '"__class__"', "os_system": '"os.system"', "template": '"{{7*7}}${7*7}"',
    "regex": '"' + "a" * 60 + '!"', "angle": '"' + "<" * 300 + '"',
    "upper_uuid": '"0197A1B2-0000-7000-8000-00000000000A"',
    # Moments that are none, or on an edge.
    "year_10000": '"10000-01-01T00:00:00Z"', "half_offset": '"2030-01-01T00:00:00+14:00"', "epoch": "1900000000",
    "dst_gap": '"2030-03-31T02:30:00+01:00"', "week": '"2030-W01-1T00:00:00Z"', "february": '"2030-02-30T00:00:00Z"',
    "space_moment": '"2030-01-01 00:00:00Z"', "arabic": '"\u0662\u0660\u0663\u0660-01-01T00:00:00Z"',
    "nulls": "[null,null]", "mixed": '["a",1,null]', "nested": '{"a":{"b":{"c":[{"d":null}]}}}',
    "empty_key": '{"": 1}', "many": "[" + "1," * 999 + "1]",
}
BROKEN = {"nan", "infinity", "overflow", "huge_int", "big_int", "unsafe_int", "huge_float", "long_float", "deep",
          "deeper",
          "deepest", "deep_object", "duplicate", "nul", "nul_key", "lone_surrogate", "lone_low", "surrogate_key",
          "bare",
          "trailing", "comment", "single", "comma", "plus", "leading", "hex", "under"}
# Of doors whose fields are read by parsers that these have, a few alone unless there is time.
WHOLE = {"enqueue", "claim", "extend", "complete", "fail", "release"}
FEW = ("nul_key", "true", "null", "zero", "negative", "fraction", "text_number", "empty", "long", "list", "object",
       "controls", "emoji", "quote", "naive", "year_zero", "far", "int_32", "safe_int", "length_201", "texts", "nested",
       "empty_key", "lists", "deep", "regex")
# What no JSON may hold is refused before a field is looked at: said in the first field of every door, and where a field
# may hold anything, which bounds its own.
ANYTHING = {"input", "payload", "checkpoint", "artifact", "diagnostic"}
# One body may take as long, at its best of a few tries.
PATIENCE_S = 0.25
FIELDS = {
    "enqueue": ("type", "input", "queue", "priority", "agent", "version", "job_id", "idempotency_key", "session_key",
                "singleton", "exclusive_group", "target", "delay_s", "available_at", "deadline_s", "deadline_at",
                "retry", "tenant_subject", "max_cost_usd", "callback_url", "callback_events", "unheard_of"),
    "agents": ("payload", "maxAttempts", "sessionKey", "singletonMode", "singleton", "callbackUrl", "callbackEvents"),
    "controls": ("action", "reason", "tenant_subject", "unheard_of"), "resume": ("available_at", "delay_s"),
    "requeue": ("reason", "idempotency_key", "actor_kind", "actor_ref"),
    "steer": ("payload", "idempotency_key"), "abort": ("reason",), "redact": ("reason",),
    "owner": ("reference", "label", "expires_at", "concurrency", "rotate", "tenant_subject"),
    "throttle": ("most", "paused", "reason", "for_s", "until", "unheard_of"),
    "timers": ("name",),
    "timer": ("type", "version", "input", "options", "every_s", "zone", "anchor_at", "moment_field", "catch_up",
              "catch_up_most", "overlap", "unheard_of"),
    "timer_preview": ("cron",), "timer_pause": ("reason", "until", "for_s"), "timer_run": ("reason", "idempotency_key"),
    "claim": ("worker_groups", "queues", "types", "slots", "wait_seconds", "request_id", "unheard_of"),
    "extend": ("checkpoint", "progress", "diagnostic", "consumed", "cost_usd", "unheard_of"),
    "complete": ("artifact", "cost_usd", "unheard_of"),
    "fail": ("reason_code", "message", "retryable", "diagnostic", "cost_usd", "unheard_of"),
    "cancelled": ("unheard_of",),
    "release": ("delay_s", "not_before", "unheard_of"),
}
BASE = {"requeue": ATTESTED,
        "enqueue": {"type": "outside", "input": {}}, "controls": {"action": "cancel"}, "fail": {"reason_code": "x"},
        "agents": {"payload": {"kind": "outside"}}, "resume": {"action": "resume"}, "owner": {"reference": "x"},
        "throttle": {"most": 3}, "timers": {"name": "hourly", "type": "outside", "every_s": 3_600},
        "timer": {"type": "outside", "every_s": 3_600}, "timer_pause": {"reason": "x"}}
METHODS = {"owner": "PUT", "throttle": "PUT", "timer": "PUT"}
PLACES = {"enqueue": "/jobs", "agents": "/agents/claude/jobs", "owner": "/owner",
          "throttle": "/throttles/queue/chat", "timers": "/timers", "timer": "/timers/daily",
          "timer_preview": "/timers/preview", "timer_pause": "/timers/daily/pause", "timer_run": "/timers/daily/run"}
PARENTS = dict.fromkeys(("extend", "complete", "fail", "release", "cancelled"), "assignments")
# Bodies as they stand on the wire, with their content type.
RAW = {
    "empty": (b"", "application/json"), "blank": (b"  ", "application/json"), "array": (b"[]", "application/json"),
    "string": (b'"x"', "application/json"), "null": (b"null", "application/json"), "number": (b"5", "application/json"),
    "half": (b'{"type": ', "application/json"), "bom": (b'\xef\xbb\xbf{"type": "outside"}', "application/json"),
    "utf16": ('{"type": "outside"}'.encode("utf-16"), "application/json"),
    "latin1": (b'{"type": "\xe9"}', "application/json"),
    "form": (b"type=outside&input=x", "application/x-www-form-urlencoded"), "text": (b"{}", "text/plain"),
    "none": (b"{}", ""), "patch": (b"{}", "application/merge-patch+json"), "xml": (b"<a/>", "application/xml"),
    "charset": (b"{}", "application/json; charset=klingon"), "utf16_named": (b"{}", "application/json; charset=utf-16"),
    "odd_type": (b"{}", "application/json\x00; a"),
    "multipart": (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
    "nul_bytes": (b"\x00" * 50, "application/json"), "twice": (b"{}{}", "application/json"),
    "too_long": (b'{"type": "' + b"x" * LIMIT + b'"}', "application/json"),
    "much_too_long": (b"[" * 10 * LIMIT, "application/json"),
    "many_keys": (json.dumps({str(n): n for n in range(20_000)}).encode(), "application/json"),
    "wide": (b"[" + b"[]," * 60_000 + b"[]]", "application/json"),
}
STATUS = {"form": 415, "text": 415, "none": 415, "patch": 415, "xml": 415, "charset": 415, "utf16_named": 415,
          "odd_type": 415,
          "multipart": 415, "too_long": 413, "much_too_long": 413}


def path_of(api, door: str) -> str:
    """The door's path, with something behind it that it has not changed yet."""
    if door.startswith("timer"):
        api.send("DELETE", "/timers/hourly")
        api.send("PUT", "/timers/daily", {"type": "outside", "cron": "@daily"})
    if door in PLACES:
        return PLACES[door]
    whose = {"tenant_subject": "acme"} if door == "requeue" else {}
    waiting = api.enqueue(retry={"max_attempts": 1}, priority=50, **whose)["id"]
    if door in ("controls", "resume", "steer", "abort", "redact"):
        if door in ("resume", "redact"):
            api.post(f"/jobs/{waiting}/controls", {"action": "pause" if door == "resume" else "cancel"})
        return f"/jobs/{waiting}/{'controls' if door == 'resume' else door}"
    if door == "claim":
        return "/runtime/claim"
    # What an earlier door gave back is claimed first.
    held = next(found for found in iter(api.claim_one, None) if found["job"]["id"] == waiting)
    if door == "requeue":
        api.assignment(held, "fail", {"reason_code": "x"})
        return f"/jobs/{waiting}/requeue"
    return f"/assignments/{held['assignment_id']}/{door}"


def _values(door: str) -> list[tuple[str, str]]:
    few = door not in WHOLE and not LONG
    return [(name, value) for name, value in VALUES.items() if not few or name in FEW]


@pytest.mark.parametrize("door", FIELDS)
def test_no_value_in_any_field_breaks_anything(api, door):
    """B8, E6: what no JSON may hold is 400 by name, what a field may not hold is a 4xx, all twice alike."""
    path, method = path_of(api, door), METHODS.get(door, "POST")
    rows = everything()
    for field in FIELDS[door]:
        first = field == FIELDS[door][0] or field in ANYTHING
        for name, value in ((name, value) for name, value in _values(door) if first or name not in BROKEN):
            base = "".join(f", {json.dumps(k)}: {json.dumps(v)}" for k, v in BASE.get(door, {}).items() if k != field)
            raw = f'{{"{field}": {value}{base}}}'.encode()
            began = time.perf_counter()
            answer = api.send(method, path, raw=raw)
            took = [time.perf_counter() - began]
            where = (door, field, name, answer.status_code, answer.content[:300])
            assert answer.status_code < 500, where
            assert answer["Content-Type"].split("+")[0] in ("application/json", "application/problem"), where
            if answer.status_code >= 400:
                told = problem(answer, answer.status_code, answer.json()["code"])
                assert "field" in told or told["code"] in ("malformed_json", "job_not_found"), where
                while len(took) < 2 or (min(took) > PATIENCE_S and len(took) < 5):
                    began = time.perf_counter()
                    assert api.send(method, path, raw=raw).content == answer.content, where
                    took.append(time.perf_counter() - began)
                assert min(took) < PATIENCE_S, (where, took)
                assert everything() == rows, where
            else:
                assert name not in BROKEN, where
                path = path_of(api, door)
                rows = everything()
            if name in BROKEN:
                assert answer.status_code in (400, 413), where


@pytest.mark.parametrize("door", FIELDS)
def test_the_corpus_knows_every_field_that_a_body_may_have(door):
    """5.7: whoever teaches a parser a word adds it to FIELDS."""
    path = PLACES.get(door) or ("/runtime/claim" if door == "claim" else f"/{PARENTS.get(door, 'jobs')}/x/{door}")
    view = resolve(f"/api/v1{path.replace('/resume', '/controls')}").func.cls
    words = getattr(view, METHODS.get(door, "POST").lower()).told.body
    assert words is not None
    # These share a parser with a field that is there.
    shared = {"jobId", "lane", "idempotency_key", "tenant_subject", "reason", "wait_seconds"}
    shared |= set(FIELDS["timer"]) | set(FIELDS["timer_preview"]) if door.startswith("timer") else set()
    shared |= set(FIELDS["controls"]) | set(FIELDS["resume"]) if door in ("controls", "resume") else set()
    assert set(words) <= {*FIELDS[door], *shared}


@pytest.mark.parametrize("door", FIELDS)
def test_no_body_breaks_anything(api, door):
    """E2, A61: wrong encodings, kinds and sizes are told apart: 400, 413, 415."""
    path = path_of(api, door)
    for name, (raw, content_type) in RAW.items():
        rows = everything()
        answer = api.send(METHODS.get(door, "POST"), path, raw=raw, content_type=content_type)
        where = (door, name, answer.status_code, answer.content[:300])
        if name == "empty" and door == "requeue":
            problem(answer, 403, "actor_attestation_required")
            continue
        if name == "empty" and door in ("claim", "extend", "complete", "release", "steer", "abort", "redact",
                                        "cancelled", "timer_run"):
            assert answer.status_code in (200, 202, 409, 422), where
            path = path_of(api, door)
            continue
        assert answer.status_code == STATUS.get(name, 400), where
        problem(answer, answer.status_code, answer.json()["code"])
        assert everything() == rows, where


def test_no_word_of_a_caller_makes_a_line_of_the_log(api, caplog):
    """6.5.10: a dozen that would; each request is one line, and none of them is in it as it came."""
    words = ("a\r\nb", "\x1b[31mred", "\x1b]0;title\x07", "a\nERROR forged", "\u2028line", "\u2029line", "\x85next",
             "\x0bvt", "\x0cff", "%0d%0aSet-Cookie: x", "{jndi:ldap://x}", "\u202eright")
    for word in words:
        caplog.clear()
        said = json.dumps(word)[1:-1]
        raw = f'{{"type": "{said}", "input": {{}}, "queue": "{said}", "job_id": "{said}", "target": "{said}"}}'
        assert api.send("POST", "/jobs", raw=raw.encode()).status_code in (400, 422)
        keyed = {"Idempotency_Key": word.encode().decode("latin-1"), "User_Agent": word.encode().decode("latin-1")}
        assert api.post("/jobs", {"type": "outside"}, **keyed).status_code in (202, 400)
        assert api.get("/jobs?type=" + quote(word)).status_code in (200, 400)
        api.get("/" + quote(word))
        lines = [Lines("json").format(record) for record in caplog.records]
        assert len([line for line in lines if '"request"' in line or "/api/v1" in line]) >= 4
        for line in lines:
            assert len(line.splitlines()) == 1, line
            assert not any(c in line for c in "\r\n\x1b\x07\x0b\x0c\x85\u2028\u2029\u202e"), line


def test_the_limit_is_counted_in_bytes_and_exact(api, settings):
    """The body at the limit is read, one byte more is 413, and a long Content-Length is not waited for."""
    body = b'{"type": "outside", "input": {"x": "' + "é".encode() * 20 + b'"}}'
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = len(body)
    assert api.send("POST", "/jobs", raw=body).status_code == 202
    told = problem(api.send("POST", "/jobs", raw=body + b" "), 413, "too_large")
    assert told["max_bytes"] == len(body)


def test_hostile_ids_and_headers_are_4xx(api):
    """Ids, keys, tenants and preconditions that hold anything."""
    for name in ("%00", "%ff", "%F0%9F%98%80", "..%2f..", "x" * 4_096, "%C0%80", "a%0Ab", "%25s", "%5CN", "%01"):
        for path in (f"/jobs/{name}", f"/jobs/{name}/receipts", f"/assignments/{name}/extend"):
            assert api.get(path).status_code in (404, 405), path
            assert api.post(path).status_code in (404, 405), path
    for word in ("%00", "%ff", "a%0Ab", "%ED%A0%80"):
        assert api.get(f"/jobs?type={word}").status_code in (200, 400), word
        problem(api.get(f"/definitions?type={word}"), 404, "definition_not_found")
        for query in (f"queue={word}", f"cursor={word}", f"status={word}", f"limit={word}"):
            # What is no UTF-8 comes as a replacement character, which is the name of no queue.
            assert api.get(f"/jobs?{query}").status_code in ((200, 400) if "queue" in query else (400,)), query
        assert api.get(f"/jobs/x/wait?timeoutMs={word}").status_code == 400, word
        assert api.post(f"/agents/{word}/jobs", {"kind": "outside"}).status_code == (
            202 if word in ("%ff", "%ED%A0%80") else 400), word
    for key in ("a\x00", "a\tb", "é", "x" * 201, " "):
        answer = api.post("/jobs", {"type": "outside"}, Idempotency_Key=key)
        assert answer.status_code == (202 if key == " " else 400), key
    for subject in ("\x00", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "x" * 256, "a\nb"):
        problem(api.get("/jobs", X_Tenant_Subject=subject), 400, "invalid_tenant_subject")
    assert api.post("/jobs", {"type": "outside"}, Content_Encoding="gzip").status_code == 415
    assert api.post("/jobs", {"type": "outside"}, X_HTTP_Method_Override="DELETE").status_code == 202


def test_texts_that_look_like_our_own_marks_are_kept_as_they_are(api):
    """Keys and inputs may hold what the store uses between values."""
    for n, key in enumerate((r"\N", "%s", "'; --", "{}", "a,b", '"', "\\")):
        told = api.enqueue(input={key: key}, idempotency_key=key, session_key=key, exclusive_group=key, target=key)
        assert told["target"]["key"] == key
        assert (told["session_key"], told["exclusive_group"]) == (key, key)
        assert api.get(f"/jobs/{told['id']}?include=input").json()["input"] == {key: key}
        assert Job.objects.get(pk=told["id"]).idempotency_key == key
        assert Receipt.objects.filter(job_id=told["id"]).count() == 1
        assert Job.objects.count() == n + 1
