"""One answer to many letters: a look at what it would do; and bulk operations of all kinds, how far they have come."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from jobs import clock
from jobs.errors import Invalid, JobsError
from jobs.models import BulkOperation
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.pages.acting import ACTIONS
from jobs.pages.letter import VERBS, status_of
from jobs.pages.narrowing import Narrowed, narrowed, number
from jobs.selectors import TooSlow
from jobs.services import letters, operations
from jobs.services.operations import Pace

RECENT = 50
ITEMS = 50


class Preview(Page):
    """`/dead-letters/answer/`: how many letters are meant and ten of them; sent, it begins the answer."""

    template_name = "jobs/letters_answer.html"
    live = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """The verb's permission, beside that to view."""
        given = request.POST if request.method == "POST" else request.GET
        self.verb = given.get("verb", "")
        if request.user.is_authenticated and self.verb in VERBS and not request.user.has_perm(VERBS[self.verb].label):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The preview; the letters that are open now are fixed with it."""
        return self._shown(narrowed(request.GET, clock.now()), token=uuid.uuid4())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Begin; the same form sent again leads to the same answer."""
        chosen = narrowed(request.POST, clock.now())
        said = {k: request.POST.get(k, "").strip() for k in ("why", "rate", "most_failed", "canary", "token")}
        try:
            if chosen.faults:
                raise Invalid(next(iter(chosen.faults.values())), field=next(iter(chosen.faults)))
            begun = operations.begin(self.verb, chosen.match, by=operator(request), reason=said["why"],
                                 token=as_token(said["token"]), pace=_pace(said))
        except JobsError as error:
            return self._shown(chosen, status_of(error), refused=error, **said)
        return redirect("console:bulk", pk=begun.pk)

    def _shown(self, chosen: Narrowed, status: int = 200, **more: Any) -> HttpResponse:
        if self.verb not in VERBS:
            chosen.faults["verb"] = "Requeue or discard?"
        context = self.get_context_data(chosen=chosen, verb=self.verb, most=operations.COUNTED, sample=[], count=0)
        if not chosen.faults:
            try:
                context |= _previewed(chosen)
            except TooSlow:
                context["slow"] = True
        return self.render_to_response({**context, **more}, status=400 if chosen.faults else status)


def _previewed(chosen: Narrowed) -> dict[str, Any]:
    upto = chosen.match.upto or letters.last(chosen.match)
    match = chosen.match._replace(upto=upto)
    sample, _ = letters.listed(match, limit=letters.SAMPLE)
    return {"upto": upto, "sample": sample, "count": letters.counted(match)}


def as_token(word: str) -> uuid.UUID:
    """The token of a form. Raises Invalid."""
    try:
        return uuid.UUID(word)
    except ValueError:
        raise Invalid("This form is not whole: open it again.", field="token", code="invalid_token") from None


def _pace(said: dict[str, str]) -> Pace:
    return Pace(said["canary"] == "1", whole(said, "rate"), whole(said, "most_failed"))


def whole(said: dict[str, str], name: str) -> int | None:
    """A whole number of a form, None where nothing was said. Raises Invalid."""
    if not said[name]:
        return None
    value = number(said[name])
    if value is None:
        raise Invalid("must be a whole number above 0", field=name, code=f"invalid_{name}")
    return value


class Bulks(Page):
    """`/dead-letters/answers/`: what was done in bulk, newest first."""

    template_name = "jobs/letters_bulks.html"
    live = None

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The latest of them."""
        return super().get_context_data(bulks=list(BulkOperation.objects.order_by("-pk")[:RECENT]), **kwargs)


class Bulk(Page):
    """`/dead-letters/answers/<id>/`: how far it has come; moves by itself, also without scripts."""

    template_name = "jobs/letters_bulk.html"
    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """As of now."""
        after, outcome = number(request.GET.get("after", "")) or 0, request.GET.get("outcome", "")[:64]
        found = triage_of(kwargs["pk"])
        try:
            page = operations.items(kwargs["pk"], after=after, limit=ITEMS, outcome=outcome.replace("\0", "") or None)
        except TooSlow:
            page = operations.Page([], None)
        may_steer = request.user.has_perm(permission_of(found["bulk"]).label)
        return self.render_to_response(self.get_context_data(
            **found, items=page.items, more=page.next, outcome=outcome, from_start=not after, may_steer=may_steer,
            filter=operations.filter_of(found["bulk"])))


def permission_of(bulk: BulkOperation) -> Permission:
    """What it takes to have begun it, and to steer it."""
    return VERBS[bulk.verb] if bulk.about == "letters" else ACTIONS[bulk.verb].permission


def triage_of(pk: int) -> dict[str, Any]:
    """What the page of a bulk operation shows; 404 where it is not there (any more)."""
    found = BulkOperation.objects.filter(pk=pk).first()
    if found is None:
        raise Http404("There is no such answer.")
    skipped = sorted(found.skipped.items(), key=lambda s: -s[1])
    return {"bulk": found, "told": operations.told(found), "skipped": skipped}


class Steer(Page):
    """`/dead-letters/answers/<id>/stop/` and `.../go/`: end it, or send the rest without waiting for the canary."""

    http_method_names = ["post"]
    verb = "stop"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """For who may give that very answer."""
        found: BulkOperation = triage_of(kwargs["pk"])["bulk"]
        if not request.user.has_perm(permission_of(found).label):
            raise PermissionDenied
        if self.verb == "stop":
            done = operations.stop(found.pk, by=operator(request))
        else:
            done = operations.let_go(found.pk)
        if not done:
            messages.warning(request, "It was too late for that: see how it stands.")
        return redirect("console:bulk", pk=found.pk)
