"""Actions of people: preview, reason, confirmation, then one service, and a log entry for each row (RELIABILITY 6.2).

The confirmation has an address of its own, outside of the transaction of Django's change view (DESIGN 4). It names
the rows that were previewed, so that nothing else is touched; the services decide again on the locked rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import OperationalError, transaction
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from jobs.admin import patience
from jobs.admin.base import JobsAdmin
from jobs.errors import Invalid, JobsError
from jobs.models.permissions import Permission
from jobs.services.cancellation import REASON_LIMIT, check_reason

# Django 6.1 has actions on the row's own page; before, a button leads to the same confirmation.
LOCATIONS: Any = getattr(admin, "ActionLocation", None)
MOST = 1_000
SAMPLE = 10
WORDS = {"not_dead_lettered": "not dead-lettered", "job_ended": "ended", "gone": "gone", "revoked": "revoked already",
         "unregistered_version": "version not registered", "system_tenant": "the house's own",
         "revision_mismatch": "moved on since they were shown", "database_busy": "database busy, try again"}


class Outcome(NamedTuple):
    """What became of the rows: how many were done, and the codes of those that were skipped."""

    done: int
    skipped: Counter[str]


class Answer(Protocol):
    """One thing that a person may have done to rows."""

    name: str
    verb: str
    done: str
    permission: Permission
    # Rows of one transaction.
    batch: int
    danger: bool
    # Said on the confirmation.
    means: str

    def foresee(self, rows: Sequence[Any]) -> dict[Any, str]:
        """The rows that would be skipped, by key, and why."""

    def give(self, rows: Sequence[Any], by: str, reason: str) -> list[str | None]:
        """Do it in the present transaction: for each row None, or the code of the refusal."""


class ReasonForm(forms.Form):
    """Why a person does it; kept in receipts and in the log."""

    reason = forms.CharField(
        max_length=REASON_LIMIT, help_text=f"Kept with each of them, at most {REASON_LIMIT} characters.",
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "autofocus": True, "autocomplete": "off"}))

    def clean_reason(self) -> str:
        """As the services take it."""
        reason: str = self.cleaned_data["reason"]
        try:
            check_reason(reason)
        except Invalid as error:
            raise ValidationError(error.message) from error
        return reason


def refused(verb: Any) -> str | None:
    """Run a verb; the code of its refusal."""
    try:
        verb()
    except JobsError as error:
        return error.reason_code
    return None


def said(code: str) -> str:
    """A code for people."""
    return WORDS.get(code, code.replace("_", " "))


def tally(codes: Iterable[str]) -> str:
    """`3 (2 ended, 1 gone)`."""
    counted = Counter(codes)
    return f"{counted.total():,} ({', '.join(f'{n:,} {said(code)}' for code, n in counted.most_common())})"


def _remember(request: HttpRequest, rows: Sequence[Any]) -> None:
    """Give each row the revision that its confirmation showed, for answers that mean it as it stood there (B28)."""
    ids, shown = request.POST.get("ids", "").split(","), request.POST.get("revisions", "").split(",")
    if len(ids) == len(shown):
        known = {id_: int(n) for id_, n in zip(ids, shown, strict=True) if n.isascii() and n.isdigit() and len(n) < 10}
        for row in rows:
            row.shown_revision = known.get(str(row.pk))


def _action(answer: Answer) -> Any:
    def act(modeladmin: AnsweringAdmin, request: HttpRequest, queryset: Any) -> HttpResponseBase:
        return modeladmin.preview(request, answer, queryset)

    act.__name__ = answer.name
    some = f"{answer.verb} selected %(verbose_name_plural)s"
    described = {"short_description": answer.verb if LOCATIONS else some, "plural_description": some,
                 "allowed_permissions": (answer.permission.name.lower(),)}
    if LOCATIONS:
        described["locations"] = [LOCATIONS.CHANGE_LIST, LOCATIONS.CHANGE_FORM]
    vars(act).update(described)
    return act


class AnsweringAdmin(JobsAdmin):
    """Rows to which people may do something by services."""

    answers: Sequence[Answer] = ()

    def __init__(self, model: Any, admin_site: Any) -> None:
        self.actions = [_action(answer) for answer in self.answers]
        super().__init__(model, admin_site)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """May cancel jobs."""
        return self.may(request, Permission.CANCEL)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """May pause and resume jobs."""
        return self.may(request, Permission.PAUSE)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        """May requeue dead letters."""
        return self.may(request, Permission.REQUEUE)

    def has_discard_permission(self, request: HttpRequest) -> bool:
        """May discard dead letters."""
        return self.may(request, Permission.DISCARD)

    def has_archive_permission(self, request: HttpRequest) -> bool:
        """May archive and restore tenants."""
        return self.may(request, Permission.ARCHIVE)

    def has_erase_permission(self, request: HttpRequest) -> bool:
        """May redact jobs, and redact or delete tenants."""
        return self.may(request, Permission.ERASE)

    def has_manage_keys_permission(self, request: HttpRequest) -> bool:
        """May manage keys."""
        return self.may(request, Permission.MANAGE_KEYS)

    def has_manage_owners_permission(self, request: HttpRequest) -> bool:
        """May manage owners."""
        return self.may(request, Permission.MANAGE_OWNERS)

    # --- the way to the confirmation ----------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        """Each answer has an address of its own."""
        own = path("answer/<slug:name>/", self.admin_site.admin_view(self.answer_view),
                   name=f"{self.opts.app_label}_{self.opts.model_name}_answer")
        return [own, *super().get_urls()]

    def address(self, answer: Answer) -> str:
        """Where an answer is confirmed."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_answer", args=[answer.name])

    def preview(self, request: HttpRequest, answer: Answer, queryset: Any) -> HttpResponseBase:
        """The confirmation for rows that were selected: the first so many of them."""
        rows = list(queryset[: MOST + 1])
        return self.confirmation(request, answer, rows[:MOST], ReasonForm(), more=len(rows) > MOST)

    def answer_view(self, request: HttpRequest, name: str) -> HttpResponseBase:
        """Show the confirmation of `?id=`, or do what was confirmed."""
        answer = self.asked(request, name)
        ids = self._ids(request)
        rows = list(self.get_queryset(request).filter(pk__in=ids).order_by(*(f"-{key}" for key in self.keys)))
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if request.method != "POST" or not form.is_valid():
            if not rows:
                raise Http404
            return self.confirmation(request, answer, rows, form)
        _remember(request, rows)
        outcome = self._give(request, answer, rows, form.cleaned_data["reason"])
        outcome.skipped.update(["gone"] * (len(ids) - len(rows)))
        self._tell(request, answer, outcome)
        return HttpResponseRedirect(self._back(request))

    def asked(self, request: HttpRequest, name: str) -> Answer:
        """The answer of this name. Raises Http404, and PermissionDenied for who may not give it."""
        answer = next((a for a in self.answers if a.name == name), None)
        if answer is None:
            raise Http404
        if not (self.has_view_permission(request) and self.may(request, answer.permission)):
            raise PermissionDenied
        return answer

    def _ids(self, request: HttpRequest) -> list[Any]:
        text = request.POST.get("ids", "") if request.method == "POST" else request.GET.get("id", "")
        words = list(dict.fromkeys(text.split(","))) if text.isprintable() else []
        try:
            ids = [self.opts.pk.to_python(word) for word in words]
        except ValidationError as error:
            raise BadRequest("These are no ids.") from error
        if not 0 < len(ids) <= MOST:
            raise BadRequest(f"At most {MOST} at once.")
        return ids

    def confirmation(self, request: HttpRequest, answer: Answer, rows: Sequence[Any], form: ReasonForm, *,
                     more: bool = False) -> TemplateResponse:
        """What would be done to which rows, and the question for the reason."""
        skipped = answer.foresee(rows)
        sample = [(row, said(skipped[row.pk]) if row.pk in skipped else "",
                   reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[quote(row.pk)]))
                  for row in rows[:SAMPLE]]
        noun = self.opts.verbose_name if len(rows) == 1 else self.opts.verbose_name_plural
        context = {
            **self.page(request, f"{answer.verb} {len(rows):,} {noun}?"), "answer": answer,
            "address": self.address(answer), "rest": len(rows) - len(sample),
            "skipped": tally(skipped.values()) if skipped else "", "nothing": len(skipped) == len(rows),
            "sample": sample, "form": form, "more": more, "most": MOST, "ids": ",".join(str(row.pk) for row in rows),
            "revisions": ",".join(str(getattr(row, "revision", "")) for row in rows),
            "back": self._back(request), "noun": noun, "foretold": self._foretold(answer, rows)}
        request.current_app = self.admin_site.name  # type: ignore[attr-defined]
        return TemplateResponse(request, "admin/jobs/confirm.html", context)

    @staticmethod
    def _foretold(answer: Answer, rows: Sequence[Any]) -> Sequence[tuple[str, str]]:
        """What would go with some of the rows, where an answer can say it."""
        foretell = getattr(answer, "foretell", None)
        if foretell is None:
            return ()
        try:
            with patience.within(patience.LIST_MS):
                return foretell(rows)  # type: ignore[no-any-return]
        except patience.OutOfPatience:
            return (("", "The database takes too long to count what would go."),)

    def _back(self, request: HttpRequest) -> str:
        """Where the person came from: a page of this site's admin, else the list."""
        home = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
        asked = request.POST.get("back") or request.GET.get("back") or request.get_full_path()
        safe = url_has_allowed_host_and_scheme(asked, allowed_hosts=None) and asked.startswith(home)
        return asked if safe and not asked.startswith(f"{home}answer/") else home

    # --- doing it -----------------------------------------------------------------------------------------------------

    def _give(self, request: HttpRequest, answer: Answer, rows: Sequence[Any], reason: str) -> Outcome:
        done, skipped = 0, Counter[str]()
        for at in range(0, len(rows), answer.batch):
            some = rows[at : at + answer.batch]
            try:
                with transaction.atomic():
                    codes = answer.give(some, f"user:{request.user.get_username()}", reason)
                    given = [row for row, code in zip(some, codes, strict=True) if code is None]
                    self._log(request, answer, given, reason)
            except OperationalError:
                # A deadlock or a time-out undid this batch as a whole; the others stand.
                skipped["database_busy"] += len(some)
                continue
            done += len(given)
            skipped.update(code for code in codes if code is not None)
        return Outcome(done, skipped)

    @staticmethod
    def _log(request: HttpRequest, answer: Answer, rows: Sequence[Any], reason: str) -> None:
        if rows:
            LogEntry.objects.log_actions(user_id=int(request.user.pk or 0), queryset=rows, action_flag=CHANGE,
                                         change_message=f"{answer.done.capitalize()}: {reason}")

    def _tell(self, request: HttpRequest, answer: Answer, outcome: Outcome) -> None:
        text = f"{outcome.done:,} {answer.done}"
        if outcome.skipped:
            text += f", {outcome.skipped.total():,} skipped {tally(outcome.skipped.elements()).partition(' ')[2]}"
        self.message_user(request, f"{text}.", messages.SUCCESS if outcome.done else messages.WARNING)

    # --- buttons of the row's own page --------------------------------------------------------------------------------

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """With a button for each answer where Django has no actions on this page."""
        row = kwargs.get("obj")
        if row is not None and not LOCATIONS:
            asked = urlencode({"id": row.pk, "back": request.get_full_path()})
            context["buttons"] = [(answer, f"{self.address(answer)}?{asked}") for answer in self.answers
                                  if self.may(request, answer.permission) and row.pk not in answer.foresee([row])]
        return super().render_change_form(request, context, *args, **kwargs)
