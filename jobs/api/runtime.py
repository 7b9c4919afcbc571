"""The claim of runners over HTTP (C31)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints, selectors
from jobs.api import fields, parsing, shapes
from jobs.api.describing import Schema, listed, or_null, ref, text, told, whole
from jobs.api.errors import Unauthenticated
from jobs.api.holding import Brought
from jobs.api.places import place
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.conf import conf
from jobs.live.room import Looked
from jobs.models import Key
from jobs.money import shown
from jobs.services import claiming, commands, costs, keys
from jobs.services.assignments import Claimed
from jobs.services.claiming import Wish
from jobs.services.keys import Permission


def _names(means: str) -> Schema:
    return or_null(listed(text(), means, most=fields.MAX_LIST))


FIELDS = {"worker_groups": _names("Only from these; by default from all that the key may serve"),
          "queues": _names("Only from these; by default from all"), "types": _names("Only these; by default all"),
          "slots": whole(1, claiming.MAX_SLOTS, "Most jobs at once", default=1),
          "wait_seconds": whole(0, means="Longest wait in seconds for the first; too long is cut", default=0),
          "request_id": or_null(text("Names this claim: said again, it is answered alike", most=200))}


class Waits(NamedTuple):
    """A claim that its view has left to the room."""

    wish: Wish
    seconds: float

    @property
    def line(self) -> Any:
        """Equals are served together."""
        return self.wish.shape

    @property
    def holder(self) -> str:
        """Whose waits are counted together."""
        return f"claim:{self.wish.key.pk}"

    @property
    def look(self) -> Callable[[Sequence[Any]], Looked]:
        """One look for the room."""
        return _look

    @staticmethod
    def lost(brought: Brought) -> None:
        """Its client has left."""
        brought.undo()


class Claim(View):
    """`/runtime/claim`."""

    permissions = {"POST": Permission.CLAIM}
    waits = ("POST",)

    @told({200: ref("Assignments")}, body=FIELDS, bodiless=True, tenant=False,
          refuses={400: "unknown_worker_group unknown_queue", 403: "group_forbidden group_served_in_process",
                   422: "unknown_job_type request_id_reused", 429: "too_many_assignments too_many_connections",
                   503: "too_slow"})
    @method_decorator(sensitive_variables())
    def post(self, request: Request) -> Response:
        """Take what is claimable, waiting for the first; nothing to do is an empty list, never an error."""
        plain: Any = request._request
        if (waited := getattr(plain, "jobs_waited", None)) is not None:
            raise waited
        body = parsing.body(request, FIELDS, optional=True)
        key = caller(request).key
        seconds = fields.wait_seconds(body)
        wish = wished(key, body)
        found, more = claiming.take(wish)
        seconds = 0 if found else claiming.longest_s(key, seconds)
        if seconds and hasattr(plain, "jobs_parked"):
            plain.jobs_parked = Waits(wish, seconds)
            return answer(None)
        if seconds:
            with place(f"claim:{key.pk}", conf().WAITS_PER_KEY, retry_after_s=1):
                found, more = claiming.wait(wish, seconds)
        if hasattr(plain, "jobs_undo"):
            plain.jobs_undo = partial(claiming.give_back, wish, found)
        [told] = told_of(key, [found])
        failpoints.at("api.claimed")
        return answer({"assignments": told, "again": more})


def wished(key: Key, body: dict[str, Any]) -> Wish:
    """What a body asks for. Raises as `claiming.wish` does."""
    return claiming.wish(
        key, worker_groups=fields.texts(body, "worker_groups"), queues=fields.texts(body, "queues"),
        types=fields.texts(body, "types"), slots=fields.count(body, "slots", 1, 1, claiming.MAX_SLOTS),
        request_id=fields.named(body, "request_id"))


def told_of(key: Key, hands: Sequence[Sequence[Claimed]]) -> list[list[dict[str, Any]]]:
    """What the runner of each hand is told: whose the jobs are, and what they run with, in a statement each for all."""
    jobs, credentials = claiming.credentials(key, [job for hand in hands for job in hand])
    ids = [job.id for job in jobs]
    whose = selectors.whose(ids) if ids else {}
    unread = commands.unread(ids, limit=commands.AT_ONCE) if ids else {}
    money = costs.left(ids)
    good = {job.fence for job in jobs}
    return [[{**shapes.assignment(job, whose.get(job.id), unread.get(job.id, ())), **credentials.get(job.fence, {}),
              "cost_left_usd": shown(money.get(job.id))}
             for job in hand if job.fence in good] for hand in hands]


def _look(waits: Sequence[Waits]) -> Looked:
    """One claim for all of these, who ask with one key for the same; each gets its answer, or waits on."""
    wishes = [one.wish for one in waits]
    key = keys.living(wishes[0].key, Permission.CLAIM)
    if key is None:
        return Looked([Unauthenticated("This key is not live any more.")] * len(wishes), False)
    served = claiming.serve(wishes)
    hands = [claiming.known(wish) if hand is None else hand for wish, hand in zip(wishes, served.hands, strict=True)]
    # A name that is known is answered whatever it still holds; else who got nothing waits on.
    some = [n for n, hand in enumerate(hands) if hand or (hand is not None and served.hands[n] is None)]
    told = told_of(key, [hands[n] or [] for n in some])
    answers: list[Any] = [None] * len(wishes)
    for n, assignments in zip(some, told, strict=True):
        undo = partial(claiming.give_back, wishes[n], hands[n] or [])
        answers[n] = Brought({"assignments": assignments, "again": served.again}, undo)
    if some:
        failpoints.at("api.claimed")
    full = sum(len(hand or ()) for hand in hands) >= min(claiming.MAX_SLOTS, sum(wish.slots for wish in wishes))
    return Looked(answers, served.again or full)
