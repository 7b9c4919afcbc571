"""What a timer says: checked when it is put, and what it enqueues at each of its moments (D13).

The same check as of an enqueue's, since it becomes one; that a definition, a limit or a tenant has changed meanwhile is
a refusal of the firing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from jobs import clock, codecs, schedules
from jobs.conf import conf, registry
from jobs.errors import Invalid, Refused
from jobs.models import Tenant, Timer, Workspace
from jobs.models.timer import CATCH_UPS, OVERLAPS
from jobs.registry import SITE, nearest
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.services import words
from jobs.services.draft import Options, Request, as_sent, row_of
from jobs.services.intake import TIMER

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")
# Words of the API, where a timer's name would stand.
RESERVED = frozenset({"preview"})
MOST_MADE_UP, USUALLY_MADE_UP = 1_000, 10
OPTIONS_BYTES = 16 * 1024
# A timer names no key and no moment: its firings have their own.
OPTIONS = tuple(f.name for f in fields(Options) if f.name not in (
    "version", "job_id", "idempotency_key", "available_at", "deadline_at", "workspace", "tenant"))
_MOMENT_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Draft:
    """What a timer should say: what to enqueue (`options` as enqueue's, by OPTIONS), and when.

    Either `cron` in `zone`, or `every_s` from `anchor_at` (None: from now). `moment_field`: that field of the input is
    given the moment. `catch_up`: of the moments that nobody was there for, `skip` makes the newest unless it is more
    than a minute late, `last` the newest, `all` the newest `catch_up_most` (1 to 1000, 10). `overlap`: while the job of
    the firing before is active, `skip` makes none, `supersede` ends it.
    """

    type: str
    input: Any = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None
    cron: str | None = None
    every_s: int | None = None
    zone: str = "UTC"
    anchor_at: datetime | None = None
    moment_field: str | None = None
    catch_up: str = "skip"
    catch_up_most: int | None = None
    overlap: str = "allow"


def columns(draft: Draft, workspace: Workspace, tenant: Tenant, name: str, now: datetime,
            old: Timer | None = None, place: words.Place | None = None) -> dict[str, Any]:
    """The columns of this draft's row; raises Invalid and Refused for all that enqueue would refuse, and for the rest.

    Codes of its own: invalid_timer_name, invalid_schedule, invalid_cron, timer_never_fires, invalid_every_s,
    unknown_zone, invalid_anchor_at, invalid_moment_field, unknown_catch_up, invalid_catch_up_most, unknown_overlap.
    """
    check_name(name)
    anchor = None if draft.every_s is None else _anchor(draft, now, old)
    if draft.every_s is None and draft.anchor_at is not None:
        raise Invalid("A cron expression has no anchor.", field="anchor_at", code="invalid_anchor_at")
    schedule = schedules.parse(cron=draft.cron, every_s=draft.every_s, zone=draft.zone, anchor=anchor)
    _one_of("catch_up", draft.catch_up, CATCH_UPS)
    _one_of("overlap", draft.overlap, OVERLAPS)
    said: dict[str, Any] = {
        # Of what is no text not its words: they may be endless.
        "type": draft.type if isinstance(draft.type, str) else type(draft.type).__name__,
        "version": draft.version, "input": codecs.canonical(draft.input),
        "options": _options(draft),
        "moment_field": _moment_field(draft.moment_field, draft.input),
        "cron": " ".join(schedule.expression.split()) if isinstance(schedule, schedules.Cron) else None,
        "every_s": draft.every_s, "anchor_at": anchor, "zone": draft.zone, "catch_up": draft.catch_up,
        "catch_up_most": _most(draft), "overlap": draft.overlap}
    timer = Timer(workspace=workspace, tenant=tenant, name=name, **said)
    row = row_of(request(timer, workspace.slug, tenant.subject, schedule.next(now) or now),
                 place or words.place(workspace.slug, tenant.subject), TIMER, b"")
    if row["worker_group"] == SYSTEM:
        # A timer of the house's own job would end what has not ended, and send what is another's (B34, E11).
        raise Refused(f"{draft.type} is the house's own.", code="origin_forbidden", field="type")
    return said


def _anchor(draft: Draft, now: datetime, old: Timer | None) -> datetime:
    """The anchor of an interval, to the whole second; the same interval keeps its own."""
    said = words.moment(draft.anchor_at, "anchor_at")
    if said is None and old is not None and old.every_s == draft.every_s and old.anchor_at is not None:
        return old.anchor_at
    return (said or now).replace(microsecond=0)


def schedule_of(timer: Timer) -> schedules.Schedule:
    """When it fires. Raises Invalid where this machine does not know its zone."""
    return _read(timer.cron, timer.every_s, timer.zone, timer.anchor_at)


# To check an expression costs more than to find its next moment.
_read = lru_cache(maxsize=4_096)(lambda cron, every_s, zone, anchor: schedules.parse(
    cron=cron, every_s=every_s, zone=zone, anchor=anchor))


def request(timer: Timer, slug: str, subject: str | None, moment: datetime, key: str | None = None) -> Request:
    """What it enqueues for a moment. Raises Invalid where its row says what is no option any more."""
    said = codecs.stored(timer.options)
    if not isinstance(said, dict) or said.keys() - set(OPTIONS):
        raise Invalid("The options of this timer are none.", field="options", code="invalid_options")
    input_ = codecs.stored(timer.input)
    if timer.moment_field is not None and isinstance(input_, dict):
        input_ = {**input_, timer.moment_field: clock.jsonable(moment)}
    if timer.overlap == "supersede":
        said.setdefault("target", f"timer {timer.name}")
    retry = said.pop("retry", SITE)
    options = Options(**said, version=timer.version, retry=_policy(retry) if isinstance(retry, dict) else retry,
                      idempotency_key=key or f"timer:{timer.pk}:{clock.jsonable(moment)}", workspace=slug,
                      tenant=subject)
    return Request(timer.type, input_, options)


def _options(draft: Draft) -> str:
    """The options as JSON, as enqueue's own fingerprint spells them."""
    if not isinstance(draft.options, Mapping):
        raise Invalid("must be an object", field="options", code="invalid_options")
    for name in draft.options:
        if name not in OPTIONS:
            raise Invalid(f"{codecs.printable(str(name), 64)!r} is not an option of a timer"
                          f"{nearest(str(name)[:64], OPTIONS)}", field=f"options.{str(name)[:64]}",
                          code="unknown_field")
    said = dict(draft.options)
    if isinstance(retry := said.get("retry"), dict):
        said["retry"] = _policy(retry)
    if isinstance(policy := said.get("retry"), RetryPolicy) and policy.deadline_at is not None:
        raise Invalid("A timer has no absolute deadline.", field="options.retry.deadline_at",
                      code="invalid_retry_policy")
    plain = as_sent(Request(draft.type, {}, Options(**said)))
    said = {name: value for name, value in plain.items() if name in OPTIONS}
    try:
        return codecs.canonical(said, max_bytes=OPTIONS_BYTES)
    except Invalid as error:
        # Of the body what is too large is else taken for the input.
        error.field = f"options{(error.field or '').replace('/', '.')}"
        error.faults = [{**fault, "field": error.field} for fault in error.faults]
        raise


def _policy(said: dict[str, Any]) -> RetryPolicy:
    """The fields that are said over the site's policy."""
    site = asdict(conf().RETRY or RetryPolicy())
    if unknown := said.keys() - site.keys():
        raise Invalid(f"is no field of a retry policy; known are {', '.join(site)}",
                      field=f"options.retry.{min(map(str, unknown))[:64]}", code="unknown_field")
    return RetryPolicy(**{**site, **said})


def check_origin(draft: Draft, origin: str) -> None:
    """Raises Refused origin_forbidden for what may not be enqueued by this origin: a timer is no way around (B13)."""
    if not isinstance(draft.type, str):
        return
    known = registry()
    found = known.current(draft.type) if type(draft.version) is not int else known.find(draft.type, draft.version)
    if found is not None and origin not in found.origins:
        raise Refused(f"{found.name} may not be enqueued by a {origin}, nor by its timers.", code="origin_forbidden",
                      field="type")


def check_name(name: Any) -> None:
    """A timer's name; raises Invalid invalid_timer_name."""
    if not isinstance(name, str) or not NAME.match(name) or name in RESERVED:
        raise Invalid("must be 1 to 100 of a-z 0-9 . _ -, and begin with a letter or digit; `preview` is reserved",
                      field="name", code="invalid_timer_name")


def _one_of(field_: str, said: Any, known: tuple[str, ...]) -> None:
    if not isinstance(said, str) or said not in known:
        raise Invalid(f"is one of {', '.join(known)}", field=field_, code=f"unknown_{field_}")


def _most(draft: Draft) -> int:
    if draft.catch_up != "all":
        if draft.catch_up_most is not None:
            raise Invalid("Only the catch-up `all` makes up several.", field="catch_up_most",
                          code="invalid_catch_up_most")
        return 1
    most = USUALLY_MADE_UP if draft.catch_up_most is None else draft.catch_up_most
    if type(most) is not int or not 1 <= most <= MOST_MADE_UP:
        raise Invalid(f"must be a whole number from 1 to {MOST_MADE_UP}", field="catch_up_most",
                      code="invalid_catch_up_most")
    return most


def _moment_field(said: Any, input_: Any) -> str | None:
    if said is None:
        return None
    if not isinstance(said, str) or not _MOMENT_FIELD.match(said) or not isinstance(input_, dict) or said in input_:
        raise Invalid("must name a field of an input that is an object and does not say it", field="moment_field",
                      code="invalid_moment_field")
    return said
