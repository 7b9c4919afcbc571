"""Timers that the settings declare (`JOBS["TIMERS"]`): what is wrong with them, and making the rows say the same.

The settings own them: others may pause, resume and run them, and nothing else. What has left the settings is removed.
Processes sync when they begin, one at a time; one that finds nothing to do writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from jobs import clock
from jobs.conf import conf
from jobs.errors import Invalid, JobsError
from jobs.models import Tenant, Timer, Workspace
from jobs.registry import nearest
from jobs.services import recurring, tenancy, timers
from jobs.services.recurring import Draft
from jobs.services.words import Place
from jobs.store import timers as store
from jobs.store.sql import joining

log = logging.getLogger("jobs.timers")
BY = "settings"
_WHERE = ("workspace", "tenant")
SAYS = (*(f.name for f in fields(Draft)), *_WHERE)


@dataclass(frozen=True, slots=True)
class Declared:
    """One timer of the settings: by default of the site's own workspace, and of no tenant."""

    name: str
    draft: Draft
    workspace: str | None
    tenant: str | None


# --- what the settings say -----------------------------------------------------------------------------------------


def faults() -> Iterator[str]:
    """A sentence for every timer of the settings that could not be, with what would be right; no database is asked."""
    for name, said in conf().TIMERS.items():
        try:
            _check(_read(name, said))
        except JobsError as error:
            yield f"JOBS['TIMERS'][{name!r}]{_place(error.field or '')}: {error.message}"


def _place(field: str) -> str:
    """A field of a refusal as the settings spell it; a pointer points into the input."""
    if field.startswith("/"):
        return f"['input'] {field}"
    return f"[{field!r}]" if field in SAYS else f" {field}" if field.startswith("options.") else ""


def _read(name: Any, said: Mapping[Any, Any]) -> Declared:
    recurring.check_name(name)
    for word in said:
        if word not in SAYS:
            raise Invalid(f"{word!r} is nothing that a timer says{nearest(str(word)[:64], SAYS)}")
    if not isinstance(said.get("type"), str):
        raise Invalid("It says no type: what it enqueues.")
    for word in _WHERE:
        if not isinstance(said.get(word), str | None):
            raise Invalid("must be text", field=word)
    draft = Draft(**{word: value for word, value in said.items() if word not in _WHERE})
    return Declared(name, draft, said.get("workspace"), said.get("tenant"))


def _check(one: Declared) -> None:
    """As it is checked when it is put, but for what only the database knows."""
    if one.tenant is not None:
        tenancy.check_subject(one.tenant)
    workspace = Workspace(slug=one.workspace or conf().WORKSPACE)
    recurring.columns(one.draft, workspace, Tenant(workspace=workspace, subject=one.tenant), one.name, clock.EPOCH,
                      place=Place(0, 0, False))


# --- making the rows say the same ----------------------------------------------------------------------------------


class AtStart:
    """Syncs once in the life of a process, tried again until the database has taken it."""

    def __init__(self) -> None:
        self._done = False

    def tick(self, limit: int = 1) -> bool:
        """Once; never more."""
        if not self._done:
            sync()
            self._done = True
        return False


def sync() -> None:
    """Put what the settings declare, remove what they no longer do; what is refused is logged and stops no other.

    A timer of the same name that somebody had made becomes the settings'. Pauses stay. Joins the caller's transaction.
    """
    try:
        wanted = conf().TIMERS
    except (ImproperlyConfigured, Invalid, TypeError) as error:
        # The checks say so as well.
        log.error("the timers of the settings cannot be read: %s", error)
        return
    if not wanted and not Timer.objects.filter(declared=True).exists():
        return
    with joining():
        store.one_at_a_time()
        kept = [_put(name, said) for name, said in wanted.items()]
        for row in Timer.objects.filter(declared=True).select_related("workspace", "tenant"):
            if (row.workspace.slug, row.tenant.subject, row.name) not in kept:
                timers.remove(row, by=BY, declared=True)


def _put(name: Any, said: Mapping[Any, Any]) -> tuple[str, str | None, Any]:
    """Where it belongs, whether or not it could be put."""
    try:
        one = _read(name, said)
        timers.put_for(tenancy.workspace(one.workspace), one.tenant, name, one.draft, by=BY, declared=True)
    except JobsError as error:
        log.error("timer %r of the settings is refused: %s (%s)", name, error.message, error.reason_code,
                  extra={"event": "timer.refused", "code": error.reason_code})
    return said.get("workspace") or conf().WORKSPACE, said.get("tenant"), name
