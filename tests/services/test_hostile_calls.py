"""Hostile values in the in-process call: a refusal by name or a clean job, no other exception, never half a row."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from jobs import enqueue
from jobs.errors import JobsError
from jobs.services.draft import Options
from tests.edges.caller import everything

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
