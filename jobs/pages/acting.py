"""Cancel, abort, pause, resume, requeue, discard: a look at what would be done, a reason, then the service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from jobs import selectors, sightings
from jobs.errors import Invalid, JobNotFound, JobsError, RevisionMismatch
from jobs.models import Job
from jobs.models.permissions import Permission
from jobs.pages.access import Page, operator
from jobs.services import cancellation, commands, dead_letters
from jobs.states import ACTIVE, HELD, State

MOST = 100
SAMPLE = 10


Run = Callable[[Sequence[UUID], str, str, Mapping[str, int]], Sequence[Any]]


class Action(NamedTuple):
    """A button: from which states it does something, what it means, and the service behind it.

    `run` takes ids, who, why and the revisions that were shown, and answers a move or a refusal for each.
    """

    verb: str
    label: str
    done: str
    permission: Permission
    states: frozenset[State]
    means: str
    run: Run
    danger: bool = False
    many: bool = True


def _letter(answer: Callable[..., Any]) -> Run:
    """One of the two answers to a job's open dead letter."""
    def run(ids: Sequence[UUID], by: str, reason: str, revisions: Mapping[str, int]) -> Sequence[Any]:
        try:
            return [answer(selectors.open_letter(job), by=by, reason=reason) for job in sightings.some(list(ids))]
        except JobNotFound:
            return [dead_letters.NotDeadLettered()]
        except JobsError as error:
            return [error]
    return run


def _abort(ids: Sequence[UUID], by: str, reason: str, revisions: Mapping[str, int]) -> Sequence[Any]:
    """Each for itself."""
    cancellation.check_reason(reason)
    answers: list[Any] = []
    for id_ in ids:
        try:
            answers.append(commands.abort(id_, by=by, reason=reason, allow_archived=True))
        except JobsError as error:
            answers.append(error)
    return answers


ACTIONS = {a.verb: a for a in (
    Action("cancel", "Cancel", "cancelled", Permission.CANCEL, ACTIVE,
           "Whoever runs one loses it at once and can commit nothing more. A cancelled job never runs again.",
           lambda ids, by, why, at: cancellation.cancel_many(ids, by=by, reason=why, allow_archived=True), danger=True),
    Action("abort", "Abort", "asked to stop", Permission.CANCEL, HELD,
           "Whoever runs one is asked to stop, and it is cancelled once that has happened. It may still complete.",
           _abort),
    Action("pause", "Pause", "paused", Permission.PAUSE, frozenset({State.QUEUED, *HELD}),
           "Whoever runs one loses it at once. A paused job waits until somebody resumes it; deadlines go on.",
           lambda ids, by, why, at: cancellation.pause_many(ids, by=by, reason=why, revisions=at)),
    Action("resume", "Resume", "resumed", Permission.PAUSE, frozenset({State.PAUSED}),
           "A resumed job waits for its turn again. One whose deadline has passed fails instead.",
           lambda ids, by, why, at: cancellation.resume_many(ids, by=by, reason=why, revisions=at)),
    Action("requeue", "Requeue", "requeued", Permission.REQUEUE, frozenset({State.FAILED}),
           "It begins a new chain of attempts with its last checkpoint. Its dead letter is closed.",
           _letter(dead_letters.requeue), many=False),
    Action("discard", "Discard", "discarded", Permission.DISCARD, frozenset({State.FAILED}),
           "Its dead letter is closed for good, and the job stays failed.",
           _letter(dead_letters.discard), danger=True, many=False),
)}


def actions_for(user: Any, *, many: bool = True) -> list[Action]:
    """The buttons that somebody may press, on a selection or on one job; what cannot be taken back stands last."""
    may = [a for a in ACTIONS.values() if user.has_perm(a.permission.label) and (a.many or not many)]
    return sorted(may, key=lambda a: a.danger)


def possible(user: Any, job: Job, has_letter: bool) -> list[Action]:
    """The buttons of one job; whoever is asked to stop already need not be asked again."""
    return [a for a in actions_for(user, many=False) if job.state in a.states and (a.many or has_letter)
            and not (a.verb == "abort" and job.abort_reason)]


class Acting(Page):
    """`/jobs/act/?verb=cancel&id=...`: GET shows what would happen, POST does it and leads back."""

    template_name = "jobs/acting.html"
    live = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Raises BadRequest for what no button of ours asks."""
        self.said = request.POST if request.method == "POST" else request.GET
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """What would happen."""
        return self._ask()

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it."""
        action, ids, reason = self._action(), self._ids(), self.said.get("reason", "").strip()
        if not ids:
            return self._ask()
        try:
            answers = action.run(ids, operator(request), reason, self._revisions())
        except Invalid as error:
            return self._ask(fault=error.message, status=400)
        except OperationalError:
            messages.error(request, "The database was too busy. Nothing was changed; try again.")
            return HttpResponseRedirect(self._back(ids))
        _say(request, action, answers)
        return HttpResponseRedirect(self._back(ids))

    def _action(self) -> Action:
        action = ACTIONS.get(self.said.get("verb", ""))
        if action is None:
            raise BadRequest("There is no such button.")
        if not self.request.user.has_perm(action.permission.label):
            raise PermissionDenied
        return action

    def _ids(self) -> list[UUID]:
        try:
            ids = list(dict.fromkeys(UUID(said) for said in self.said.getlist("id")))
        except ValueError:
            raise BadRequest("This is no job.") from None
        if len(ids) > MOST or (len(ids) > 1 and not self._action().many):
            raise BadRequest("These are too many jobs at once.")
        return ids

    def _revisions(self) -> dict[str, int]:
        """What was shown of each: whoever pauses or resumes a job means it as it stood there (B28)."""
        said = [word.partition(":") for word in self.said.getlist("revision")]
        return {id_: int(n) for id_, _, n in said if n.isascii() and n.isdigit() and len(n) < 10}

    def _back(self, ids: Sequence[UUID]) -> str:
        # Only ever a query of the list: nobody is led to another site.
        if (query := self.said.get("list")) is not None or len(ids) != 1:
            return f"{reverse('console:jobs')}?{query or ''}".rstrip("?")
        return reverse("console:job", args=[ids[0]])

    def _ask(self, fault: str = "", status: int = 200) -> HttpResponse:
        action, ids = self._action(), self._ids()
        jobs = sightings.some(ids)
        able = [job for job in jobs if job.state in action.states]
        context = self.get_context_data(
            action=action, ids=ids, jobs=jobs, sample=able[:SAMPLE], able=len(able), more=max(0, len(able) - SAMPLE),
            revisions=[f"{job.pk}:{job.revision}" for job in jobs],
            skipped=sorted(Counter(job.state for job in jobs if job.state not in action.states).items()),
            missing=len(ids) - len(jobs), fault=fault, reason=self.said.get("reason", ""), back=self._back(ids),
            list_query=self.said.get("list"))
        return self.render_to_response(context, status=status)


_MOVED = {State.CANCELLED: "cancelled", State.PAUSED: "paused", State.FAILED: "failed: the deadline had passed"}


def _say(request: HttpRequest, action: Action, answers: Sequence[Any]) -> None:
    """What became of each, counted."""
    refused = Counter(_why(a) for a in answers if isinstance(a, JobsError))
    moved = Counter(_word(action, a) for a in answers if not isinstance(a, JobsError))
    if moved:
        messages.success(request, ", ".join(f"{n:,} {word}" for word, n in moved.items()) + ".")
    if any("deadline_dropped" in getattr(answer, "warnings", ()) for answer in answers):
        messages.warning(request, "Its deadline had passed and is dropped: the new chain has none.")
    if refused or not answers:
        why = " ".join(f"{n:,} \N{MULTIPLICATION SIGN} {said}" for said, n in refused.most_common(5))
        messages.warning(request, f"{sum(refused.values()):,} skipped. {why}".strip())


def _why(refused: JobsError) -> str:
    # Each names its own revision; together they are one sentence.
    return RevisionMismatch().message if isinstance(refused, RevisionMismatch) else refused.message


def _word(action: Action, moved: Any) -> str:
    if moved.repeated:
        return f"{action.done} already"
    # A pause may find an abort pending, a resume a deadline that has passed: the job says what became of it.
    return action.done if action.verb in ("abort", "requeue", "discard") else _MOVED.get(moved.state, action.done)
