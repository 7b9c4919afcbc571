"""One dead letter: what happened, and the two answers to it; another input on the way, for who may see it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from jobs.conf import registry
from jobs.errors import Invalid, JobsError, NotFound
from jobs.models import DeadLetter
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.pages.payload import edited
from jobs.services import dead_letters, letters
from jobs.services.letters import Told

# What a text field in a browser is still good for.
EDITABLE = 256 * 1024
SHOWN = 64 * 1024
VERBS = {"requeue": Permission.REQUEUE, "discard": Permission.DISCARD}


def status_of(error: JobsError) -> int:
    """The number for a page that shows a refusal."""
    return 400 if isinstance(error, Invalid) else 404 if isinstance(error, NotFound) else 409


class Letter(Page):
    """`/dead-letters/<id>/`."""

    template_name = "jobs/letter.html"
    live = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The letter as it stands."""
        return self.shown(kwargs["pk"])

    def shown(self, pk: int, status: int = 200, **more: Any) -> HttpResponse:
        """The page; 404 for a letter that is not there (any more)."""
        told = letters.one(pk)
        if told is None:
            raise Http404("There is no such dead letter.")
        may_see = self.request.user.has_perm(Permission.VIEW_PAYLOAD.label)
        context = {**self.get_context_data(told=told, letter=told.letter, **(_input(told) if may_see else {})), **more}
        # Where the form is still there, what is wrong with it stands in it.
        context["at_form"] = bool(context.get("editing") and context.get("editable") and told.open)
        return self.render_to_response(context, status=status)


def _input(told: Told) -> dict[str, Any]:
    text = letters.pretty(told.letter.job.input or "{}")
    definition = registry().find(told.letter.type, told.letter.job.version)
    return {"input": text[:SHOWN], "cut": len(text) > SHOWN, "edited": text,
            "editable": definition is not None and len(text) <= EDITABLE}


class Answer(Letter):
    """`/dead-letters/<id>/requeue/` and `.../discard/`: one answer; a refusal is shown on the letter's page."""

    http_method_names = ["post"]
    verb = "requeue"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer, and go back to the letter."""
        pk = kwargs["pk"]
        _check(request, VERBS[self.verb])
        letter = DeadLetter.objects.filter(pk=pk).first()
        if letter is None:
            raise Http404("There is no such dead letter.")
        reason = request.POST.get("reason", "").strip()
        said: dict[str, Any] = {"reason": reason}
        try:
            more = {}
            if self.verb == "requeue" and "input" in request.POST:
                _check(request, Permission.VIEW_PAYLOAD)
                said["edited"] = request.POST["input"]
                more["input"] = edited(request.POST["input"], letter.job.input)
            getattr(dead_letters, self.verb)(letter, by=operator(request), reason=reason, **more)
        except JobsError as error:
            return self.shown(pk, status_of(error), refused=error, faults=getattr(error, "faults", []),
                              tried=self.verb, editing="edited" in said, **said)
        done = "The job waits again: it is requeued." if self.verb == "requeue" else "The letter is discarded."
        messages.success(request, done)
        return redirect("console:letter", pk=pk)


def _check(request: HttpRequest, permission: Permission) -> None:
    if not request.user.has_perm(permission.label):
        raise PermissionDenied
