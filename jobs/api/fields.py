"""Typed fields of bodies and queries: each reader takes one field, checks its kind, and refuses naming it.

What a field may say about a job is checked by the services; here a string is a string and a moment a moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from rest_framework.request import Request

from jobs import codecs
from jobs.api.parsing import refuse_unknown
from jobs.conf import conf
from jobs.errors import Invalid
from jobs.registry import SITE
from jobs.retry import RetryPolicy
from jobs.services.limits import PUBLIC

_WHOLE = re.compile(r"[0-9]{1,9}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")
_REASON_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_POLICY = tuple(f.name for f in fields(RetryPolicy))
MAX_CODES = 64
MAX_LIST = 100


def whole(said: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises Invalid."""
    text = said.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise Invalid(f"must be a whole number from {least} to {most}", field=name, code=f"invalid_{name}")
    return int(text)


def count(value: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    """A whole number of a body; neither a truth value nor 1.0 nor "1" is one. Raises Invalid."""
    said = value.get(name, default)
    if type(said) is not int or not least <= said <= most:
        raise Invalid(f"must be a whole number from {least} to {most}", field=name, code=f"invalid_{name}")
    return said


def wait_seconds(value: dict[str, Any]) -> int:
    """How long a claim may wait; too long is cut later, not refused (C31). Raises Invalid invalid_wait_seconds."""
    return count(value, "wait_seconds", 0, 0, codecs.MAX_INTEGER)


def text(value: dict[str, Any], name: str, *, default: str | None = None) -> str:
    """A string of a body. Raises Invalid missing_field or invalid_<name>."""
    if name not in value and default is None:
        raise Invalid("is missing", field=name, code="missing_field")
    said = value.get(name)
    if said is None and default is not None:
        return default
    if not isinstance(said, str):
        raise Invalid("must be a string", field=name, code=f"invalid_{name}")
    return said


def named(value: dict[str, Any], name: str) -> str | None:
    """A string of a body; null and absent are None. Raises Invalid."""
    said = value.get(name)
    if said is not None and not isinstance(said, str):
        raise Invalid("must be a string", field=name, code=f"invalid_{name}")
    return said


def boolean(value: dict[str, Any], name: str, default: bool) -> bool:
    """A truth value of a body. Raises Invalid."""
    said = value.get(name, default)
    if not isinstance(said, bool):
        raise Invalid("must be true or false", field=name, code=f"invalid_{name}")
    return said


def texts(value: dict[str, Any], name: str) -> list[str] | None:
    """A list of strings of a body; null and absent are None. Raises Invalid."""
    said = value.get(name)
    if said is None:
        return None
    if not isinstance(said, list) or len(said) > MAX_LIST or not all(isinstance(item, str) for item in said):
        raise Invalid(f"must be a list of at most {MAX_LIST} strings", field=name, code=f"invalid_{name}")
    return said


def entry(value: dict[str, Any], name: str) -> dict[str, Any] | None:
    """An object of a body; null and absent are None. Raises Invalid."""
    said = value.get(name)
    if said is not None and not isinstance(said, dict):
        raise Invalid("must be an object", field=name, code=f"invalid_{name}")
    return said


def seconds(value: dict[str, Any], name: str, code: str) -> float | None:
    """A number of seconds of a body; null and absent are None. Raises Invalid with the code."""
    said = value.get(name)
    if said is not None and type(said) not in (int, float):
        raise Invalid("must be a number of seconds", field=name, code=code)
    return said


def moment(value: dict[str, Any], name: str, code: str) -> datetime | None:
    """A moment of RFC 3339 with its offset; null and absent are None. Raises Invalid with the code."""
    said = value.get(name)
    if said is None:
        return None
    try:
        if isinstance(said, str) and _MOMENT.fullmatch(said):
            # In UTC: what lies beyond the calendar there could be kept, and never be told again.
            return datetime.fromisoformat(said.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Invalid("must be a moment like 2030-01-31T12:00:00Z, with its offset", field=name, code=code)


def reason_code(value: dict[str, Any]) -> str:
    """The stable word of a failure (C14). Raises Invalid."""
    said = text(value, "reason_code")
    if not _REASON_CODE.fullmatch(said):
        raise Invalid("must be snake_case, at most 64 characters", field="reason_code", code="invalid_reason_code")
    return said


def retry(value: dict[str, Any]) -> Any:
    """The retry policy of a request: absent means the definition's, null never, an object over the site's (C13, E4).

    Raises Invalid invalid_retry_policy, retry_policy_exceeds_cap and unknown_field.
    """
    if "retry" not in value:
        return SITE
    said = value["retry"]
    if said is None:
        return None
    if not isinstance(said, dict):
        raise Invalid("must be an object or null", field="retry", code="invalid_retry_policy")
    refuse_unknown(said, _POLICY, beneath="retry.")
    policy = _policy(_over_site(said))
    if policy.base_delay_s < conf().MIN_BASE_DELAY_S:
        raise Invalid(f"must be at least {conf().MIN_BASE_DELAY_S:g} seconds", field="retry.base_delay_s",
                      code="invalid_retry_policy")
    if policy.max_attempts > conf().MAX_ATTEMPTS:
        raise Invalid(f"must be at most {conf().MAX_ATTEMPTS}", field="retry.max_attempts",
                      code="retry_policy_exceeds_cap")
    return policy


def _over_site(said: dict[str, Any]) -> dict[str, Any]:
    """The fields that are said over the site's; of two delays the one that is not said follows the other."""
    site = conf().RETRY or RetryPolicy()
    given = {name: said.get(name, getattr(site, name)) for name in _POLICY}
    if said.get("deadline_s") is not None or said.get("deadline_at") is not None:
        given |= {"deadline_s": said.get("deadline_s"), "deadline_at": _deadline_at(said)}
    base, most = given["base_delay_s"], given["max_delay_s"]
    if type(base) in (int, float) and type(most) in (int, float) and most < base:
        if "max_delay_s" not in said:
            given["max_delay_s"] = base
        elif "base_delay_s" not in said:
            given["base_delay_s"] = most
    return given


def _deadline_at(said: dict[str, Any]) -> datetime | None:
    with beneath_field("retry."):
        return moment(said, "deadline_at", "invalid_retry_policy")


@contextmanager
def beneath_field(root: str) -> Iterator[None]:
    """Refusals name the field with what it stands in."""
    try:
        yield
    except Invalid as error:
        error.field = f"{root}{error.field}"
        error.faults = [{**fault, "field": f"{root}{fault['field']}"} for fault in error.faults]
        raise


def _policy(given: dict[str, Any]) -> RetryPolicy:
    if isinstance(given["retry_on"], list) and len(given["retry_on"]) > MAX_CODES:
        raise Invalid(f"must be at most {MAX_CODES} codes", field="retry.retry_on", code="invalid_retry_policy")
    try:
        return RetryPolicy(**given)
    except Invalid as error:
        faults = [{**fault, "field": f"retry.{fault['field']}"} for fault in error.faults]
        raise Invalid(error.message, field=faults[0]["field"], code=error.reason_code, faults=faults) from None


def limits(value: dict[str, Any]) -> dict[str, Any]:
    """Limits by their names or by the names that other systems know (C37). Raises Invalid for one said twice."""
    said = entry(value, "limits")
    if said is None:
        raise Invalid("is missing", field="limits", code="missing_field")
    ours = {public: name for name, public in PUBLIC.items()}
    found: dict[str, Any] = {}
    for name, one in said.items():
        own = ours.get(name, name)
        if own in found:
            raise Invalid("is said twice", field=f"limits.{name}", code="invalid_limit")
        found[own] = one
    return found


def idempotency_key(request: Request, body: dict[str, Any]) -> Any:
    """The key of a request: a header, or a field of the body. Raises Invalid where they differ."""
    header, field = request._request.META.get("HTTP_IDEMPOTENCY_KEY"), body.get("idempotency_key")
    if header is not None and field is not None and header != field:
        raise Invalid("The header and the field name different keys.", field="idempotency_key",
                      code="invalid_idempotency_key")
    return field if header is None else header
