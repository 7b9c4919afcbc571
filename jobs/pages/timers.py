"""Timers on pages: which there are, what each will do and did; pause, resume and run now, with a reason (D13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.contrib import messages
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from jobs.errors import JobsError
from jobs.models import Timer as Row
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.pages.narrowing import number
from jobs.pages.payload import SHOWN, pretty
from jobs.selectors import TooSlow
from jobs.services import grants, timers, timetable
from jobs.services.cancellation import check_reason
from jobs.services.timers import TimerNotFound
from jobs.services.timetable import STATES, Filter, Line

SPANS = [(3_600, "an hour"), (6 * 3_600, "six hours"), (86_400, "a day"), (7 * 86_400, "a week")]
CATCH_UPS = {"skip": "nothing is made up for: what is more than a minute late makes no job",
             "last": "the last of the missed moments is made up for", "all": "every missed moment is made up for"}
OVERLAPS = {"allow": "another one beside it", "skip": "none: the moment passes",
            "supersede": "the new one supersedes it"}


class Narrowed(NamedTuple):
    """What the list was narrowed to, and where its page begins."""

    search: str = ""
    tenant: str = ""
    state: str = ""
    before: UUID | None = None

    @property
    def query(self) -> str:
        """The same as a query, without the page."""
        said = {"search": self.search, "tenant": self.tenant, "state": self.state}
        return urlencode({name: value for name, value in said.items() if value})

    @property
    def narrows(self) -> bool:
        """Whether it does at all."""
        return bool(self.query)


def _narrowed(said: Any) -> Narrowed:
    words = {name: said.get(name, "").strip() for name in ("search", "tenant", "state")}
    if words["state"] not in STATES:
        words["state"] = ""
    return Narrowed(**words, before=_id(said.get("before", "")))


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


class Timers(Page):
    """`/timers/`: the newest first; `search`, `tenant` and `state` narrow."""

    template_name = "jobs/timers.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """A page of them, or the word that the database takes too long."""
        narrowed = _narrowed(self.request.GET)
        told = {**kwargs, "narrowed": narrowed, "states": STATES}
        try:
            found = timetable.listed(Filter(narrowed.search, narrowed.tenant, narrowed.state), narrowed.before)
        except TooSlow:
            return super().get_context_data(too_slow=True, **told)
        refused = sum(line.last is not None and line.last.outcome == "refused" for line in found.lines)
        return super().get_context_data(found=found, refused=refused, **told)


class Timer(Page):
    """`/timers/<id>/`; `before` leads back through its history."""

    template_name = "jobs/timer.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What it does, its next moments and its history."""
        line = _found(kwargs["pk"])
        before = number(self.request.GET.get("before", ""))
        seeing = self.request.user.has_perm(Permission.VIEW_PAYLOAD.label)
        return super().get_context_data(
            line=line, timer=line.timer, next=timetable.moments(line.timer),
            history=timetable.history(line.timer, before), before=before, trouble=timetable.trouble(line.timer),
            caught_up=CATCH_UPS[line.timer.catch_up], overlaps=OVERLAPS[line.timer.overlap],
            options=timetable.options_said(line.timer), spans=SPANS, key=uuid4(),
            input=pretty(line.timer.input)[:SHOWN] if seeing else None, **kwargs)


class Answer(Page):
    """`/timers/<id>/pause/`, `resume/`, `run/`: for who manages timers, with a reason; then back to the timer."""

    http_method_names = ["post"]
    permission_required = (Permission.VIEW.label, Permission.MANAGE_TIMERS.label)
    verb = ""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Do it; a refusal is a word on the timer's page."""
        timer, said = _found(kwargs["pk"]).timer, request.POST
        reason = said.get("reason", "").strip()
        try:
            check_reason(reason)
            if self.verb == "run":
                grants.check_user_enqueues(timer.workspace, request.user.pk)
            messages.success(request, _answered(self.verb, timer, operator(request), reason, said))
        except JobsError as error:
            messages.warning(request, f"{error.field}: {error.message}" if error.field else error.message)
        except OperationalError:
            messages.error(request, "The database was too busy. Nothing was changed; try again.")
        return redirect("console:timer", pk=timer.pk)


def _answered(verb: str, timer: Row, by: str, reason: str, said: Mapping[str, str]) -> str:
    """What was done, in a sentence. Raises JobsError."""
    if verb == "pause":
        for_s = number(said.get("for_s", ""))
        timers.pause(timer, by=by, reason=reason, until=timetable.end_of(None, for_s))
        return "Paused."
    if verb == "resume":
        timers.resume(timer, by=by, reason=reason)
        return "Resumed."
    key = said.get("key", "")
    made = timers.run_now(timer, by=by, key=f"console:{key}" if _id(key) else None, reason=reason)
    return "It has made its job." if made.job_id else "It has run."


def _found(pk: UUID) -> Line:
    try:
        return timetable.of(pk)
    except TimerNotFound as error:
        raise Http404(error.message) from None
