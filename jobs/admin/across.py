"""More rows than one confirmation names: a bulk operation on all that the list's filters let through (case-G03)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from jobs.admin import dates, lists
from jobs.admin.answering import MOST, SAMPLE, Answer, AnsweringAdmin, ReasonForm
from jobs.errors import JobsError
from jobs.routing import SYSTEM
from jobs.services import operations
from jobs.services.operations import Foreseen, JobMatch, Match

Meant = Match | JobMatch
# Of a list's address, but no filter of it.
BESIDE = {lists.OLDER, lists.NEWER, "e"}


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 19):
        raise ValueError(word)
    return int(word)


def _group(word: str) -> str:
    # The house's own jobs are stopped one by one (E11).
    if word == SYSTEM:
        raise ValueError(word)
    return word


_WHOSE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "type": ("type", str), "reason": ("reason", str), "workspace": ("workspace_id", _number),
    "tenant": ("tenant_id", _number)}
_JOBS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **_WHOSE, "queue": ("queue", str), "group": ("worker_group", _group), "state": ("states", lambda word: (word,))}


def _read(said: Mapping[str, str], known: Mapping[str, tuple[str, Callable[[str], Any]]]) -> dict[str, Any]:
    if any(name not in known or not word.isprintable() for name, word in said.items()):
        raise ValueError("not a filter that a bulk operation has")
    return {known[name][0]: known[name][1](word) for name, word in said.items()}


def _filters(query: QueryDict) -> dict[str, str]:
    return {name: str(query[name]) for name in query if name not in BESIDE}


def jobs(query: QueryDict) -> JobMatch | None:
    """What a list of jobs means; None where a search or the like says more than a bulk operation can be told."""
    said = _filters(query)
    try:
        period = dates.read(said.pop(dates.PARAMETER)) if dates.PARAMETER in said else dates.Period()
        dated: dict[str, Any] = {"since": period.begin(), "until": period.end()} if period.parts else {}
        return JobMatch(**_read(said, _JOBS), **dated)
    except ValueError:
        return None


def letters(query: QueryDict) -> Match | None:
    """What a list of dead letters means: the open ones among them; None as above."""
    said = _filters(query)
    try:
        return Match(**_read(said, _WHOSE)) if said.pop("answer", "open") == "open" else None
    except ValueError:
        return None


class AcrossAdmin(AnsweringAdmin):
    """Rows of which any number may be answered at once."""

    # What bulk operations can do of the answers.
    swept: tuple[str, ...] = ()

    @staticmethod
    def meant(query: QueryDict) -> Meant | None:
        """What the address of a list means; None for what no bulk operation can be told."""
        raise NotImplementedError

    def preview(self, request: HttpRequest, answer: Answer, queryset: Any) -> HttpResponseBase:
        """As for some rows; where there are more than it names, for all that match."""
        if len(queryset.values_list("pk")[: MOST + 1]) > MOST and (found := self._foreseen(answer, request.GET)):
            return self._ask(request, answer, found, request.GET.urlencode(), ReasonForm(), uuid.uuid4())
        return super().preview(request, answer, queryset)

    def answer_view(self, request: HttpRequest, name: str) -> HttpResponseBase:
        """As for some rows; with `across`, begin the operation that was confirmed. The same form again is the same."""
        if request.method != "POST" or "across" not in request.POST:
            return super().answer_view(request, name)
        answer, form = self.asked(request, name), ReasonForm(request.POST)
        query, token = QueryDict(request.POST["across"]), _token(request.POST.get("token", ""))
        match = self.meant(query) if answer.name in self.swept else None
        if match is None:
            raise BadRequest("No list of ours means these.")
        if not form.is_valid():
            found = self._foreseen(answer, query)
            return self._ask(request, answer, found, query.urlencode(), form, token) if found else \
                HttpResponseRedirect(self._back(request))
        try:
            self._begin(request, answer, match, form.cleaned_data["reason"], token)
        except JobsError as error:
            self.message_user(request, error.message, messages.WARNING)
        return HttpResponseRedirect(self._back(request))

    def _foreseen(self, answer: Answer, query: QueryDict) -> Foreseen | None:
        match = self.meant(query) if answer.name in self.swept else None
        if match is None:
            return None
        try:
            found = operations.preview(answer.name, match, SAMPLE)
        except JobsError:
            return None
        return found if found.sample else None

    def _ask(self, request: HttpRequest, answer: Answer, found: Foreseen, query: str, form: ReasonForm,
             token: uuid.UUID) -> TemplateResponse:
        rows = list(self.get_queryset(request).filter(pk__in=found.sample).order_by(*(f"-{key}" for key in self.keys)))
        count, noun = found.expected, self.opts.verbose_name_plural
        many = "all" if count is None else f"more than {operations.COUNTED:,}" if count > operations.COUNTED \
            else f"{count:,}"
        sample = [(row, "", reverse(f"admin:jobs_{self.opts.model_name}_change", args=[quote(row.pk)])) for row in rows]
        context = {
            **self.page(request, f"{answer.verb} {many} {noun}?"), "answer": answer, "address": self.address(answer),
            "sample": sample, "form": form, "noun": noun, "back": self._back(request), "across": query, "token": token,
            "upto": found.match.upto if found.match else "", "many": many}
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        return TemplateResponse(request, "admin/jobs/confirm.html", context)

    def _begin(self, request: HttpRequest, answer: Answer, match: Meant, reason: str, token: uuid.UUID) -> None:
        word = request.POST.get("upto", "")
        try:
            upto: Any = str(uuid.UUID(word)) if isinstance(match, JobMatch) else _number(word)
        except ValueError:
            raise BadRequest("This form is not whole.") from None
        begun = operations.begin(answer.name, match._replace(upto=upto), by=f"user:{request.user.get_username()}",
                                 reason=reason, token=token, allow_archived=isinstance(match, JobMatch))
        known = ContentType.objects.get_for_model(begun)
        LogEntry.objects.get_or_create(
            content_type=known, object_id=str(begun.pk), action_flag=ADDITION,
            defaults={"user_id": int(request.user.pk or 0), "object_repr": str(begun)[:200],
                      "change_message": f"{answer.verb}: {reason}"})
        where = reverse("admin:jobs_bulkoperation_change", args=[begun.pk])
        self.message_user(request, format_html('<a href="{}">Bulk operation {}</a> has begun.', where, begun.pk),
                          messages.SUCCESS)


def _token(word: str) -> uuid.UUID:
    try:
        return uuid.UUID(word)
    except ValueError:
        raise BadRequest("This form is not whole.") from None
