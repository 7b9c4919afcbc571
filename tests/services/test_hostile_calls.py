"""Hostile values in the in-process call: a refusal by name or a clean job, no other exception, never half a row."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from jobs import enqueue
from jobs.errors import JobsError
from jobs.models import DeadLetter
from jobs.outcomes import Failed
from jobs.services import (
    beats,
    cancellation,
    commands,
    dead_letters,
    grants,
    intake,
    keys,
    limits,
    operations,
    owners,
    runners,
    tenancy,
    throttles,
)
from jobs.services.draft import Options
from jobs.store.matching import Match
from tests.edges.caller import Caller, everything

DEEP: Any = []
for _ in range(20_000):
    DEEP = [DEEP]
LOOP: list[Any] = []
LOOP.append(LOOP)


VALUES: dict[str, Any] = {
    "nul": "a\x00b", "surrogate": "\ud800", "nan": float("nan"), "infinity": float("inf"), "huge": 10**5_000,
    "unsafe": 2**53, "big": 2**63, "bytes": b"x", "set": {1}, "tuple": (1, 2), "object": object(), "class": int,
    "function": len, "deep": DEEP, "loop": LOOP, "nul key": {"a\x00": 1}, "number key": {1: 2}, "none key": {None: 1},
    "surrogate key": {"\udfff": 1}, "decimal": Decimal("1e999999"), "uuid": uuid.UUID(int=0), "complex": 1j,
    "naive": datetime(2030, 1, 1), "min": datetime.min, "max": datetime.max, "true": True, "false": False, "zero": 0,
    "minus": -1, "fraction": 0.5, "minus zero": -0.0, "far": 1e308, "tiny": 5e-324, "empty": "", "blank": " ",
    "long": "x" * 5_000, "much": "x" * 2_000_000, "wide": {str(n): n for n in range(20_000)}, "nfd": "e\u0301",
    "generator": (n for n in range(3)), "list": [], "dict": {}, "dunder": {"__class__": "x"},
    "proto": {"__proto__": {}},
    "crlf": "a\r\nb", "escape": "\x1b[31m", "rtl": "\u202e", "format": "%s{0}{x}",
    "quote": "'; DROP TABLE jobs_job; --",
}


def tried(call: Any) -> JobsError | TypeError | None:
    """The refusal, if it is one; TypeError is what Python itself says to a call that cannot be."""
    try:
        call()
    except (JobsError, TypeError) as error:
        return error
    return None


FIELDS = ("type", "input", *(field for field in Options.__dataclass_fields__))


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_any_option_breaks_an_enqueue(database, field):
    """5.7, B8, E6: the in-process call is as strict as the API, for every field of Options."""
    for name, value in VALUES.items():
        said = {"type": "outside", "input": {}, field: value}
        type_, given = said.pop("type"), said.pop("input")
        before, where = everything(), f"{field}={name}"
        refused = tried(lambda t=type_, g=given, s=said: enqueue(t, g, **s))
        if refused is not None:
            assert everything() == before, where
            assert not isinstance(refused, JobsError) or refused.reason_code, where
            str(refused).encode()


class Stage:
    """A job that a runner holds, one that waits, and a dead letter: what verbs are about."""

    def __init__(self, driver: Any) -> None:
        api = Caller()
        claim = {"path": "/api/v1/runtime/claim", "data": {"slots": 1}, "content_type": "application/json",
                 "headers": {"Authorization": f"Bearer {api.secret}"}}
        self.key, self.place = api.key, tenancy.workspace()
        driver.enqueue()
        driver.fail(driver.claim_one(), retryable=False)
        self.waiting = driver.enqueue()
        self.letter = DeadLetter.objects.get()
        self.held = intake.enqueue("outside", {}).id
        self.name = api.client.post(**claim).json()["assignments"][0]["assignment_id"]


def _match(said: Any) -> Match:
    return Match(tenant_id=tenancy.tenant(tenancy.workspace(), None).pk, type=said)


# Every place where a caller of another part of the process says something, as a call of a stage and a value.
VERBS: dict[str, Any] = {
    "cancel": lambda s, v: cancellation.cancel(v, by="t"),
    "cancel reason": lambda s, v: cancellation.cancel(s.waiting, by="t", reason=v),
    "cancel revision": lambda s, v: cancellation.cancel(s.waiting, by="t", revision=v),
    "pause": lambda s, v: cancellation.pause(v, by="t"),
    "pause reason": lambda s, v: cancellation.pause(s.waiting, by="t", reason=v),
    "resume": lambda s, v: cancellation.resume(v, by="t"),
    "resume delay": lambda s, v: cancellation.resume(s.waiting, by="t", delay_s=v),
    "resume moment": lambda s, v: cancellation.resume(s.waiting, by="t", available_at=v),
    "requeue reason": lambda s, v: dead_letters.requeue(s.letter, by="t", reason=v),
    "requeue input": lambda s, v: dead_letters.requeue(s.letter, by="t", input=v),
    "discard reason": lambda s, v: dead_letters.discard(s.letter, by="t", reason=v),
    "bulk verb": lambda s, v: operations.begin(v, _match(None), by="t", reason="r"),
    "bulk reason": lambda s, v: operations.begin("discard", _match(None), by="t", reason=v),
    "bulk rate": lambda s, v: operations.begin("discard", _match(None), by="t", reason="r",
                                               pace=operations.Pace(rate=v)),
    "extend": lambda s, v: beats.extend(s.key, v),
    "extend checkpoint": lambda s, v: beats.extend(s.key, s.name, checkpoint={"seq": v}),
    "extend checkpoint value": lambda s, v: beats.extend(s.key, s.name, checkpoint={"seq": 1, "value": v}),
    "extend stage": lambda s, v: beats.extend(s.key, s.name, stage={"stage": v}),
    "extend diagnostic": lambda s, v: beats.extend(s.key, s.name, diagnostic={"value": v}),
    "extend consumed": lambda s, v: beats.extend(s.key, s.name, consumed=[v]),
    "fail": lambda s, v: runners.fail(s.key, v, Failed("broken", "m", False)),
    "release": lambda s, v: runners.release(s.key, v),
    "release delay": lambda s, v: runners.release(s.key, s.name, delay_s=v),
    "release moment": lambda s, v: runners.release(s.key, s.name, not_before=v),
    "cancelled": lambda s, v: runners.cancelled(s.key, v),
    "throttle kind": lambda s, v: throttles.pause(v, "chat", by="t", reason="r"),
    "throttle name": lambda s, v: throttles.pause("queue", v, by="t", reason="r"),
    "throttle tenant": lambda s, v: throttles.pause("tenant", v, by="t", reason="r", workspace=s.place),
    "throttle reason": lambda s, v: throttles.pause("queue", "chat", by="t", reason=v),
    "throttle until": lambda s, v: throttles.pause("queue", "chat", by="t", reason="r", until=v),
    "throttle for": lambda s, v: throttles.pause("queue", "chat", by="t", reason="r", for_s=v),
    "throttle most": lambda s, v: throttles.cap("queue", "chat", v, by="t"),
    **{f"limit {name}": lambda s, v, n=name: limits.set_limits(s.place, **{n: v}) for name in limits.NAMES},
    "owner reference": lambda s, v: owners.put_for(s.place, None, v, by="t"),
    "owner label": lambda s, v: owners.put_for(s.place, None, "r", by="t", label=v),
    "owner concurrency": lambda s, v: owners.put_for(s.place, None, "r", by="t", concurrency=v),
    "grant role": lambda s, v: grants.give(s.place, v, by="t", key=s.key),
    "key permission": lambda s, v: keys.make(s.place, "k", [v]),
    "steer": lambda s, v: commands.steer(s.held, v, by="t"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_value_breaks_a_verb(driver, verb):
    """5.7, E6: what is said to a verb in process is refused by name, or done; nothing of a refusal is written."""
    stage = Stage(driver)
    faults = []
    for name, value in VALUES.items():
        before = everything()
        try:
            refused = tried(lambda v=value: VERBS[verb](stage, v))
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {str(error)[:100]}")
            continue
        if refused is not None:
            if everything() != before:
                faults.append(f"{name}: half of it is written")
            str(refused).encode()
    assert faults == []
