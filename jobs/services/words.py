"""The words of a request, checked one by one: where it goes, and what each option may say.

Every refusal names the field and what would be right.
"""

from __future__ import annotations

import difflib
import re
import uuid
from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from jobs import clock, ids
from jobs.callbacks import DELIVERY_TYPE, HOUSE, bits, events_of
from jobs.conf import callback_policy, conf, registry
from jobs.errors import Invalid, JobNotFound, NotFound, Refused, StaleFence
from jobs.money import amount
from jobs.registry import Definition
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.services import tenancy
from jobs.states import SingletonMode
from jobs.store import lookup
from jobs.store.lookup import Caps

KEY_LIMIT = 200
TARGET_LIMIT = 512
AGENT_LIMIT = 64
MAX_DELAY_S = 366 * 86_400
MAX_SPAN_S = 2_000_000
US = 1_000_000
_PRINTABLE = re.compile(r"[\x20-\x7e]{1,200}\Z")
_EXTERNAL = re.compile(r"[A-Za-z0-9._:~-]{1,200}\Z")
JobId = str | uuid.UUID
RESERVED = frozenset({"dead-letters", "batch", "events", "stats", "bulk", "schema", "docs"})


class Place(NamedTuple):
    """Where a job goes: the tenant of a workspace."""

    workspace_id: int
    tenant_id: int
    archived: bool
    deleting: bool = False
    caps: Caps = Caps()


def check_place(workspace: str | None, tenant: str | None) -> None:
    """A workspace and a tenant that there could be; raises NotFound and Invalid."""
    if workspace is not None and (not isinstance(workspace, str) or not workspace.isprintable()):
        raise NotFound("There is no such workspace.", field="workspace")
    if tenant is not None:
        tenancy.check_subject(tenant)


def place(workspace: str | None, tenant: str | None) -> Place:
    """The tenant of a workspace, both as checked, id 0 for one that its first job will make; raises NotFound."""
    slug = conf().WORKSPACE if workspace is None else workspace
    found = lookup.place(slug, tenant)
    if found is not None:
        return Place(*found)
    known = tenancy.workspace(slug)
    return Place(known.pk, 0 if tenant is not None else tenancy.tenant(known, None).pk, False,
                 caps=lookup.caps_of_workspace(known.pk))


def made(workspace: str | None, tenant: str) -> Place:
    """The same once the tenant is there: made now, after every refusal and before the first job (E3)."""
    tenancy.tenant(tenancy.workspace(workspace), tenant, make=True)
    return place(workspace, tenant)


def job_id(value: Any) -> str:
    """The id of a job as rows spell it, from a UUID or its text; raises JobNotFound.

    Before any statement: what the database cannot read would poison the caller's transaction.
    """
    try:
        return str(uuid.UUID(str(value)))
    except (ValueError, RecursionError):
        raise JobNotFound() from None


def fence(value: Any) -> str:
    """The id of an attempt as rows spell it; raises StaleFence, since one that cannot be is never the live one."""
    try:
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise StaleFence() from None


def unregistered(job_ids: Collection[str]) -> dict[str, Invalid]:
    """A refusal for each of these jobs whose version this site does not know any more (B28, E4)."""
    return {id_: Invalid(f"{type_}@{version} is not registered any more.", field="type", code="unregistered_version")
            for id_, (type_, version) in lookup.versions(job_ids).items() if registry().find(type_, version) is None}


def queue(asked: str | None, own: str) -> str:
    """A queue that this site knows; raises Invalid naming the nearest (A4)."""
    if asked is None:
        return own
    if not isinstance(asked, str) or asked not in conf().QUEUES:
        near = difflib.get_close_matches(asked[:64] if isinstance(asked, str) else "", conf().QUEUES, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(conf().QUEUES))}."
        raise Invalid(f"There is no such queue; {hint}", field="queue", code="unknown_queue")
    return asked


def external_id(value: str | None) -> str | None:
    """The caller's job_id (E2)."""
    if value is None:
        return None
    if not isinstance(value, str) or not _EXTERNAL.match(value) or ids.shaped(value) or value in RESERVED:
        raise Invalid("must be 1 to 200 of A-Z a-z 0-9 . _ : ~ -, not shaped like a UUID and no reserved word",
                      field="job_id", code="invalid_job_id")
    return value


def key(value: str | None, field: str) -> str | None:
    """A key of 1 to 200 printable ASCII characters (C11, E2)."""
    if value is not None and (not isinstance(value, str) or not _PRINTABLE.match(value)):
        raise Invalid(f"must be 1 to {KEY_LIMIT} printable ASCII characters", field=field, code=f"invalid_{field}")
    return value


def singleton(session_key: str | None, said: Any) -> tuple[str | None, SingletonMode]:
    """The session key of a request, and what its enqueue does with the active jobs of that key (A14).

    `said` is a mode, or `{"key": ..., "mode": ...}`: the key may stand in either place, and must agree in both.
    """
    name, mode = key(session_key, "session_key"), said
    if isinstance(said, dict):
        if unknown := said.keys() - {"key", "mode"}:
            raise Invalid("is no field here; known are key and mode", field=f"singleton.{min(map(str, unknown))}",
                          code="unknown_field")
        inner, mode = said.get("key"), said.get("mode")
        if inner is not None and (not isinstance(inner, str) or not _PRINTABLE.match(inner)):
            raise Invalid(f"must be 1 to {KEY_LIMIT} printable ASCII characters", field="singleton.key",
                          code="invalid_session_key")
        if name is not None and inner is not None and name != inner:
            raise Invalid("session_key and singleton.key name different keys.", field="singleton.key",
                          code="session_key_mismatch")
        name = inner if name is None else name
    if mode is None:
        return name, SingletonMode.ALLOW
    if not isinstance(mode, str) or mode not in list(SingletonMode):
        raise Invalid(f"is one of {', '.join(SingletonMode)}", code="unknown_singleton_mode",
                      field="singleton.mode" if isinstance(said, dict) else "singleton")
    if mode != SingletonMode.ALLOW and name is None:
        raise Invalid(f"A singleton of mode {mode} needs a session key.", field="session_key",
                      code="missing_session_key")
    return name, SingletonMode(mode)


def agent(value: str) -> str:
    """An agent id: a short printable word (A23)."""
    if not isinstance(value, str) or not _PRINTABLE.match(value) or len(value) > AGENT_LIMIT:
        raise Invalid(f"must be 1 to {AGENT_LIMIT} printable ASCII characters", field="agent", code="invalid_agent")
    return value


def target(value: str) -> str:
    """The caller's name of a thing, without the type (B14)."""
    if not isinstance(value, str) or not 0 < len(value) <= TARGET_LIMIT or not value.isprintable():
        raise Invalid(f"must be 1 to {TARGET_LIMIT} printable characters", field="target", code="invalid_target")
    return value


def _seconds(value: Any, field: str, code: str, most: float) -> float:
    # Compared before it is made a float, which the largest integers cannot be; NaN is in no range.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise Invalid(f"must be a number of seconds from 0 to {most:g}", field=field, code=code)
    return float(value)


def delay_us(value: float | None) -> int:
    """A delay in whole microseconds."""
    return 0 if value is None else int(_seconds(value, "delay_s", "invalid_availability", MAX_DELAY_S) * US)


def deadline_ms(value: float | None) -> int | None:
    """A relative deadline, at most the site's longest (C15)."""
    if value is None:
        return None
    seconds = _seconds(value, "deadline_s", "invalid_deadline", conf().MAX_DEADLINE_S)
    if seconds <= 0:
        raise Invalid("must be more than 0", field="deadline_s", code="invalid_deadline")
    return int(seconds * 1000)


def deadline_at(value: datetime | None) -> datetime | None:
    """An absolute deadline: ahead, and no further than the site's longest (C15)."""
    at = moment(value, "deadline_at")
    if at is not None and not 0 < (at - clock.now()).total_seconds() <= conf().MAX_DEADLINE_S:
        raise Invalid(f"must lie ahead, by at most {conf().MAX_DEADLINE_S} seconds", field="deadline_at",
                      code="invalid_deadline")
    return at


def policy_deadline(policy: RetryPolicy) -> dict[str, Any]:
    """The deadline of a retry policy: beyond the site's longest it exceeds a cap, past it is none (C18)."""
    most, ahead = conf().MAX_DEADLINE_S, policy.deadline_s
    if policy.deadline_at is not None:
        ahead = (policy.deadline_at - clock.now()).total_seconds()
        if ahead <= 0:
            raise Invalid("must lie ahead", field="retry.deadline_at", code="invalid_retry_policy")
    if ahead is not None and ahead > most:
        raise Invalid(f"must be at most {most} seconds ahead", code="retry_policy_exceeds_cap",
                      field="retry.deadline_s" if policy.deadline_at is None else "retry.deadline_at")
    return {"deadline_ms": None if policy.deadline_s is None else max(1, int(policy.deadline_s * 1000)),
            "deadline_at": policy.deadline_at}


def max_cost_usd(value: Any) -> Decimal | None:
    """The most that a job may cost (C12)."""
    return None if value is None else amount(value, "max_cost_usd", code="invalid_max_cost_usd")


def cost_usd(value: Any) -> Decimal:
    """What an attempt has cost (C12)."""
    return amount(value, "cost_usd", code="invalid_cost_usd")


def span_ms(value: float | None, field: str) -> int | None:
    """A definition's span in whole milliseconds."""
    return None if value is None else max(1, int(_seconds(value, field, "invalid_definition", MAX_SPAN_S) * 1000))


def moment(value: datetime | None, field: str) -> datetime | None:
    """A moment with a time zone, until 2199: the database counts microseconds exactly up to 2255 (2**53)."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None or not 1970 <= value.year < 2200:
        raise Invalid("must be a moment with a time zone, from 1970 to 2199", field=field, code=f"invalid_{field}")
    return value


def callback(url: Any, events: Any, known: Definition) -> tuple[str | None, int | None]:
    """Address and events (as bits) of a request: its own callback, else the site's, else none (A37, E11).

    Raises Refused callbacks_disabled, Invalid invalid_callback_url and invalid_callback_events. No name is looked up
    here, inside a caller's transaction: that is done before each send.
    """
    site = conf().CALLBACK
    if url is None and events is None and (site is None or known.worker_group == SYSTEM):
        return None, HOUSE if known.type == DELIVERY_TYPE else None
    asked = None if events is None else events_of(events)
    if url is None:
        if site is None:
            raise Invalid("There is no callback_url that they would go to.", field="callback_events",
                          code="invalid_callback_events")
        return None, bits(asked or site.get("events") or known.callback_events)
    if not conf().callbacks:
        raise Refused("This site sends no callbacks: JOBS['CALLBACKS'] is off.", code="callbacks_disabled",
                      field="callback_url")
    callback_policy().target(url)
    return url, bits(asked or known.callback_events)
