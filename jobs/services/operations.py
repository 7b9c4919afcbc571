"""Bulk operations: one verb for all letters or jobs that match; begun, previewed, told of, stopped (RELIABILITY 6.2).

What matches is fixed when one is begun: nothing that is opened or made later is meant. `services.triage` does it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from django.db import OperationalError, transaction

from jobs import clock, ids
from jobs.errors import Conflict, Invalid, NotFound
from jobs.models import BulkItem, BulkOperation, Leader
from jobs.selectors import QUERY_CANCELED, Scope, TooSlow
from jobs.services.cancellation import check_reason
from jobs.states import ACTIVE, State
from jobs.store import bulk, matching, meant
from jobs.store.matching import COUNTED as COUNTED
from jobs.store.matching import Match as Match
from jobs.store.meant import JobMatch as JobMatch
from jobs.store.sql import ALIAS, rows, sqlstate

T = TypeVar("T")
DUTY = "triage"
VERBS = ("requeue", "discard")
# What is done to jobs, and in which states it does something.
JOB_VERBS = {"cancel": tuple(s.value for s in State if s in ACTIVE),
             "pause": (State.QUEUED.value, State.LEASED.value, State.RUNNING.value), "resume": (State.PAUSED.value,)}
MOST_SELECTED = 500
MOST_RATE = 10_000
PATIENCE_MS = 5_000


WAITING = "waiting"


class BulkNotFound(NotFound):
    """There is no such bulk operation, or it is not yours."""

    code = "bulk_not_found"


class TokenUsed(Conflict):
    """This form has been sent before, for something else."""

    code = "token_used"


class Pace(NamedTuple):
    """How carefully: one first (`canary`), so many a second (`rate`), until so many percent failed again."""

    canary: bool = False
    rate: int | None = None
    most_failed: int | None = None


# Compiling such a statement takes longer than running it.
_PATIENCE = """SELECT set_config('statement_timeout', %s, true), set_config('work_mem', '32MB', true),
    set_config('jit', 'off', true)"""


def patiently(work: Callable[[], T], ms: int = PATIENCE_MS) -> T:
    """Read with a time limit, and with room enough to group many letters. Raises TooSlow."""
    try:
        with transaction.atomic(using=ALIAS):
            rows(_PATIENCE, [str(int(ms))])
            return work()
    except OperationalError as error:
        if sqlstate(error) == QUERY_CANCELED:
            raise TooSlow("The database takes too long to look through these letters; narrow them down.") from error
        raise


def begin(verb: str, match: Match | JobMatch, *, by: str, reason: str, token: uuid.UUID | None = None,
          pace: Pace = Pace(), allow_archived: bool = False, limited: bool = False) -> BulkOperation:  # noqa: B008
    """Begin one operation on all that match now, open letters or jobs; the same token again is the same operation.

    `limited`: the tenants' rates of requeues bind it (C28). Raises Invalid (verb, reason, pace, states, too many
    selected), TokenUsed, and NotFound `nothing_matches`.
    """
    _check(verb, match, reason, pace)
    token = token or uuid.uuid4()
    asked = {"verb": verb, "by": by[:200], "reason": reason, "allow_archived": allow_archived, "limited": limited}
    if (known := BulkOperation.objects.filter(token=token).first()) is not None:
        return _same(known, verb, match, asked)
    chosen = fixed(verb, match)
    expected = None if chosen is None else counted(chosen)
    if chosen is None or expected == 0:
        raise NotFound("Nothing matches any more.", code="nothing_matches")
    made, _ = BulkOperation.objects.get_or_create(token=token, defaults={
        **asked, **_columns(chosen), **pace._asdict(), "expected": expected})
    return _same(made, verb, match, asked)


def fixed(verb: str, match: Match | JobMatch) -> Match | JobMatch | None:
    """The same without whatever is opened or made later, of jobs those in a state for this verb; None: there is none.

    Raises Invalid `invalid_state` where the verb does nothing in any of these states, and TooSlow.
    """
    if isinstance(match, Match):
        last = patiently(lambda: matching.newest(match, None, 1))
        return match._replace(upto=last[0]) if last else None
    states = tuple(state for state in JOB_VERBS[verb] if not match.states or state in match.states)
    if not states:
        raise Invalid(f"To {verb} does nothing to a job in this state.", field="state", code="invalid_state")
    upto = match.upto or meant.newest_of_all()
    return None if upto is None else match._replace(states=states, upto=upto)


def counted(match: Match | JobMatch) -> int | None:
    """How many match, up to one more than 100,000; None where it would take too long."""
    try:
        return patiently(lambda: matching.count(match) if isinstance(match, Match) else meant.count(match))
    except TooSlow:
        return None


def _columns(match: Match | JobMatch) -> dict[str, Any]:
    if isinstance(match, JobMatch):
        return {"about": "jobs", "job_filter": match.told(), "workspace_id": match.workspace_id,
                "tenant_id": match.tenant_id}
    return {"workspace_id": match.workspace_id, "tenant_id": match.tenant_id, "type": match.type,
            "letter_reason": match.reason, "cluster": match.cluster, "since": match.since, "until": match.until,
            "house": match.house, "upto": match.upto, "letters": None if match.letters is None else list(match.letters)}


def _same(found: BulkOperation, verb: str, match: Match | JobMatch, asked: dict[str, Any]) -> BulkOperation:
    if any(getattr(found, name) != value for name, value in asked.items()) or not _alike(match_of(found), verb, match):
        raise TokenUsed()
    return found


def _alike(known: Match | JobMatch, verb: str, match: Match | JobMatch) -> bool:
    if isinstance(known, Match) and isinstance(match, Match):
        return known == match._replace(upto=known.upto, answered=False, bulk=None)
    if isinstance(known, JobMatch) and isinstance(match, JobMatch):
        return known == (fixed(verb, match._replace(upto=known.upto)))
    return False


def _check(verb: str, match: Match | JobMatch, reason: str, pace: Pace) -> None:
    check_reason(reason)
    verbs = VERBS if isinstance(match, Match) else tuple(JOB_VERBS)
    if verb not in verbs:
        raise Invalid(f"must be one of {', '.join(verbs)}", field="verb", code="unknown_verb")
    if isinstance(match, JobMatch) and match.upto is not None and not ids.shaped(match.upto):
        raise Invalid("This form is not whole: open it again.", field="upto", code="invalid_selection")
    picked = match.letters if isinstance(match, Match) else match.jobs
    if picked is not None and not 0 < len(picked) <= MOST_SELECTED:
        raise Invalid(f"Select 1 to {MOST_SELECTED} of them.", field="letters", code="invalid_selection")
    for name, value, most in (("rate", pace.rate, MOST_RATE), ("most_failed", pace.most_failed, 100)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise Invalid(f"must be a whole number from 1 to {most}", field=name, code=f"invalid_{name}")
    if verb != "requeue" and (pace.canary or pace.most_failed is not None):
        raise Invalid("Only what is requeued can fail again.", field="canary" if pace.canary else "most_failed",
                      code="invalid_pace")


def match_of(asked: BulkOperation) -> Match | JobMatch:
    """What a bulk operation means."""
    if asked.about == "jobs":
        return meant.read(asked.job_filter or {})
    return Match(asked.workspace_id, asked.tenant_id, asked.type, asked.letter_reason, asked.cluster, asked.since,
                 asked.house, None if asked.letters is None else tuple(asked.letters), asked.upto, until=asked.until)


class Foreseen(NamedTuple):
    """How many match, as `counted` says it, and the ids of the newest of them."""

    match: Match | JobMatch | None
    expected: int | None
    sample: list[Any]


def preview(verb: str, match: Match | JobMatch, size: int) -> Foreseen:
    """What an operation would meet, without beginning it. Raises as `begin` does for states, and TooSlow."""
    chosen = fixed(verb, match)
    if chosen is None:
        return Foreseen(None, 0, [])
    if isinstance(chosen, Match):
        letters = chosen
        found: list[Any] = list(patiently(lambda: matching.newest(letters, None, size)))
    else:
        jobs = chosen
        found = list(patiently(lambda: meant.sample(jobs, size)))
    return Foreseen(chosen, counted(chosen), found)


def by_token(seen: Scope, token: uuid.UUID) -> BulkOperation | None:
    """The operation of this token on what is of this scope's tenant, if there is one."""
    if seen.tenant_id is None:
        return None
    return BulkOperation.objects.filter(token=token, workspace_id=seen.workspace_id, tenant_id=seen.tenant_id).first()


def filter_of(asked: BulkOperation) -> dict[str, Any]:
    """What it was narrowed to, by the words of a filter; moments as text."""
    match = match_of(asked)
    told = match.told() if isinstance(match, JobMatch) else {
        name: clock.jsonable(value) if name in ("since", "until") else value
        for name, value in match._asdict().items() if value not in (None, False)}
    return {name: value for name, value in told.items() if name not in ("workspace_id", "tenant_id", "upto", "jobs",
                                                                        "letters")}


def stop(pk: int, *, by: str) -> bool:
    """End a bulk operation; a batch that is on is finished and counted. False where it had ended."""
    return bulk.end(pk, "stopped", by[:200])


def let_go(pk: int) -> bool:
    """Send the rest without waiting for the canary's end. False where there is nothing to wait for."""
    return bulk.let_go(pk)


class Progress(NamedTuple):
    """How a bulk operation stands. `left` is None where nobody knows how many there are; `a_second` until now.

    `gone`: their jobs were erased meanwhile, known at the end. `word`: gathering, running, waiting (for its canary),
    alone (nobody runs the loops), or how it ended.
    """

    word: str
    left: int | None
    gone: int
    a_second: float
    seconds: float


def told(asked: BulkOperation) -> Progress:
    """How this one stands."""
    now = clock.now()
    until = asked.ended_at or asked.moved_at or now
    seconds = max(0.0, (until - asked.created_at).total_seconds())
    size = asked.size
    rest = max(0, size - asked.looked_at) if size is not None else 0
    unknown = size is None or (asked.total is None and size > COUNTED)
    finished = asked.end == "finished"
    return Progress(_word(asked), 0 if finished else None if unknown else rest,
                    rest if finished and asked.total is not None else 0,
                    asked.looked_at / seconds if seconds > 0 else 0.0, seconds)


def _word(asked: BulkOperation) -> str:
    if asked.end is not None:
        return asked.end
    if not Leader.objects.filter(duty=DUTY, until__gt=clock.Now()).exists():
        return "alone"
    if asked.total is None:
        return "gathering"
    return "waiting" if asked.canary_letter is not None and asked.going_at is None else "running"


def going(most: int = 20) -> list[BulkOperation]:
    """The bulk operations that have not ended."""
    return list(BulkOperation.objects.filter(ended_at=None).order_by("pk")[:most])


class Page(NamedTuple):
    """Items of a bulk operation in order, and the number behind which the next page begins (None: there is none)."""

    items: list[BulkItem]
    next: int | None


def items(pk: int, *, after: int, limit: int, outcome: str | None = None) -> Page:
    """What became of each, by its place in the set; with `outcome` those of one word alone, `waiting`: to come."""
    found = BulkItem.objects.filter(bulk_id=pk, number__gt=after).order_by("number")
    if outcome is not None:
        found = found.filter(outcome=None if outcome == WAITING else outcome)
    shown = patiently(lambda: list(found[: limit + 1]))
    return Page(shown[:limit], shown[limit - 1].number if len(shown) > limit else None)
