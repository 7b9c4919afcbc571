"""Enqueues for an agent, as its clients ask: the payload names its type by `kind`, attempts are clamped (A19, A53).

What becomes of a request is `intake`'s and the same for every door; this only says what theirs means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobs.codecs import MAX_INTEGER
from jobs.conf import conf, registry
from jobs.errors import Invalid
from jobs.registry import SITE, Definition, nearest
from jobs.retry import RetryPolicy
from jobs.schemas import Opaque
from jobs.services import intake
from jobs.services.draft import Door, Options, Request
from jobs.services.intake import Enqueued

ATTEMPTS, MOST_ATTEMPTS = 2, 8
MODES = ("allow", "cancel", "steer")


def enqueue(agent: str, payload: Any, *, max_attempts: Any = None, sent: dict[str, Any], door: Door,
            **options: Any) -> Enqueued:
    """Enqueue one job for an agent; keywords are fields of Options. An unknown agent is accepted, with a warning (A26).

    Raises what `intake.enqueue` raises: Invalid unknown_job_type before anything is written (A27), and Invalid for a
    payload that is no object with a `kind` and for `max_attempts` that is no whole number.
    """
    if not isinstance(payload, dict):
        raise Invalid("must be an object", field="payload", code="invalid_payload")
    if "kind" not in payload:
        raise Invalid("The payload names no kind.", field="kind", code="missing_field")
    kind = payload["kind"]
    if not isinstance(kind, str):
        raise Invalid("must be a string", field="kind", code="invalid_kind")
    known = _current(kind)
    asked = Options(agent=agent, retry=policy(known, max_attempts), **options)
    request = Request(kind, payload if known is None else _input(known, payload), asked, {"agent": agent, "body": sent},
                      clamps=True)
    return intake.enqueue_many([request], door=door)[0]


def _current(kind: str) -> Definition | None:
    # Who repeats a request is answered before its kind is judged, so an unknown one is left to intake (A18, E3).
    try:
        return registry().current(kind)
    except Invalid:
        return None


def _input(definition: Definition, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload as the definition reads it: `kind` is the type's name, and part of the input where that takes it."""
    codec = definition.input
    if isinstance(codec, Opaque) or "kind" in codec.json_schema().get("properties", {"kind": {}}):
        return payload
    return {name: value for name, value in payload.items() if name != "kind"}


def policy(definition: Definition | None, asked: Any) -> Any:
    """The retry policy here: 2 attempts unless said, at least 1 and at most 8 whatever is said (A19).

    A definition that is never retried stays so where the request says nothing. Raises Invalid invalid_max_attempts.
    """
    if asked is not None and (type(asked) is not int or abs(asked) > MAX_INTEGER):
        raise Invalid("must be a whole number", field="max_attempts", code="invalid_max_attempts")
    own = conf().RETRY if definition is None or definition.retry is SITE else definition.retry
    if asked is None and own is None:
        return SITE
    timing = own if isinstance(own, RetryPolicy) else RetryPolicy()
    return replace(timing, max_attempts=ATTEMPTS if asked is None else min(max(asked, 1), MOST_ATTEMPTS))


def singleton(mode: Any, key: Any, both: Any) -> dict[str, Any]:
    """The two forms of a singleton as options: `singletonMode` beside `sessionKey`, or `singleton` with both (A14).

    Raises Invalid unknown_singleton_mode naming the nearest, and invalid_singleton where the forms differ.
    """
    if isinstance(both, str):
        both = {"mode": both}
    if not isinstance(both, dict | None) or set(both or ()) - {"key", "mode"}:
        raise Invalid("must be a mode, or an object of key and mode", field="singleton", code="invalid_singleton")
    both = both or {}
    told = {"singleton": _one("singletonMode", mode, both.get("mode")),
            "session_key": _one("sessionKey", key, both.get("key"))}
    if told["singleton"] is not None and told["singleton"] not in MODES:
        said = told["singleton"]
        raise Invalid(f"There is no such mode{nearest(said, MODES)} Known are {', '.join(MODES)}.",
                      field="singletonMode", code="unknown_singleton_mode")
    # What is the default anyway needs no saying.
    return {name: value for name, value in told.items()
            if value is not None and (name, value) != ("singleton", "allow")}


def _one(name: str, here: Any, there: Any) -> Any:
    if here is not None and there is not None and here != there:
        raise Invalid(f"{name} and singleton say different things.", field="singleton", code="invalid_singleton")
    return there if here is None else here
