"""Dead letters by the thousand: their clusters, and one answer to all that match (DESIGN 7.3, RELIABILITY 6.2).

What matches is fixed when a bulk answer is begun; `Triage`, a duty with one leader, gives it batch by batch, each in
a short transaction that also counts it, so that what is shown as done is done. A letter that somebody else has
answered meanwhile is no error and is not counted.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from django.db import OperationalError, connections, transaction

from jobs import clock, failpoints
from jobs.errors import Conflict, Invalid, JobsError, NotFound
from jobs.models import BulkAnswer, Leader
from jobs.selectors import QUERY_CANCELED, TooSlow
from jobs.services import dead_letters
from jobs.services.cancellation import check_reason
from jobs.store import bulk, letters, matching
from jobs.store.matching import COUNTED as COUNTED
from jobs.store.matching import Match as Match
from jobs.store.moves import Moved
from jobs.store.sql import ALIAS, NotInTransaction, durable, is_read_only, rows, run, sqlstate

T = TypeVar("T")
log = logging.getLogger("jobs.triage")
DUTY = "triage"
VERBS = ("requeue", "discard")
BATCH = 500
MOST_SELECTED = 500
MOST_RATE = 10_000
PATIENCE_MS = 5_000
LOCK_MS = 2_000
LOCK_NOT_AVAILABLE = "55P03"
# A rate that is judged by too few jobs says nothing; by too many, it is old.
JUDGED_FROM, JUDGED = 10, 1_000
JUDGED_EVERY_S = 1.0


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


def begin(verb: str, match: Match, *, by: str, reason: str, token: uuid.UUID | None = None,
          pace: Pace = Pace()) -> BulkAnswer:  # noqa: B008
    """Begin one answer to all open letters that match now; the same token again is the same answer.

    Raises Invalid (verb, reason, pace, too many selected), TokenUsed, and NotFound `nothing_matches`.
    """
    _check(verb, match, reason, pace)
    token = token or uuid.uuid4()
    if (known := BulkAnswer.objects.filter(token=token).first()) is not None:
        return _same(known, verb, match, by, reason)
    last = patiently(lambda: matching.newest(match, None, 1))
    if not last:
        raise NotFound("No open dead letter matches any more.", code="nothing_matches")
    upto = last[0]
    expected = patiently(lambda: matching.count(match._replace(upto=upto)))
    made, _ = BulkAnswer.objects.get_or_create(token=token, defaults={
        "verb": verb, "by": by[:200], "reason": reason, "workspace_id": match.workspace_id,
        "tenant_id": match.tenant_id, "type": match.type, "letter_reason": match.reason, "cluster": match.cluster,
        "since": match.since, "house": match.house, "upto": upto, "expected": expected,
        "letters": None if match.letters is None else list(match.letters), **pace._asdict()})
    return _same(made, verb, match, by, reason)


def _same(found: BulkAnswer, verb: str, match: Match, by: str, reason: str) -> BulkAnswer:
    meant = match._replace(upto=found.upto, answered=False, bulk=None)
    if (found.verb, match_of(found), found.by, found.reason) != (verb, meant, by[:200], reason):
        raise TokenUsed()
    return found


def _check(verb: str, match: Match, reason: str, pace: Pace) -> None:
    check_reason(reason)
    if verb not in VERBS:
        raise Invalid(f"must be one of {', '.join(VERBS)}", field="verb", code="unknown_verb")
    if match.letters is not None and not 0 < len(match.letters) <= MOST_SELECTED:
        raise Invalid(f"Select 1 to {MOST_SELECTED} letters.", field="letters", code="invalid_selection")
    for name, value, most in (("rate", pace.rate, MOST_RATE), ("most_failed", pace.most_failed, 100)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise Invalid(f"must be a whole number from 1 to {most}", field=name, code=f"invalid_{name}")
    if verb != "requeue" and pace != Pace():
        raise Invalid("A pace is for requeueing.", field="rate", code="invalid_pace")


def match_of(answer: BulkAnswer) -> Match:
    """The letters that a bulk answer means."""
    return Match(answer.workspace_id, answer.tenant_id, answer.type, answer.letter_reason, answer.cluster,
                 answer.since, answer.house, None if answer.letters is None else tuple(answer.letters), answer.upto)


def stop(pk: int, *, by: str) -> bool:
    """End a bulk answer; a batch that is on is finished and counted. False where it had ended."""
    return bulk.end(pk, "stopped", by[:200])


def let_go(pk: int) -> bool:
    """Send the rest without waiting for the canary's end. False where there is nothing to wait for."""
    return bulk.let_go(pk)


class Progress(NamedTuple):
    """How a bulk answer stands. `left` is None where more matched than were counted; `a_second` until now.

    `gone`: answered by somebody else meanwhile, known at the end. `word`: running, waiting (for its canary), alone
    (nobody runs the loops), or how it ended.
    """

    word: str
    left: int | None
    gone: int
    a_second: float
    seconds: float


def told(answer: BulkAnswer) -> Progress:
    """How this one stands."""
    now = clock.now()
    until = answer.ended_at or answer.moved_at or now
    seconds = max(0.0, (until - answer.created_at).total_seconds())
    rest = max(0, answer.expected - answer.looked_at)
    finished = answer.end == "finished"
    return Progress(_word(answer), 0 if finished else None if answer.expected > COUNTED else rest,
                    rest if finished and answer.expected <= COUNTED else 0,
                    answer.looked_at / seconds if seconds > 0 else 0.0, seconds)


def _word(answer: BulkAnswer) -> str:
    if answer.end is not None:
        return answer.end
    if not Leader.objects.filter(duty=DUTY, until__gt=clock.Now()).exists():
        return "alone"
    return "waiting" if answer.canary_letter is not None and answer.going_at is None else "running"


def going(most: int = 20) -> list[BulkAnswer]:
    """The bulk answers that have not ended."""
    return list(BulkAnswer.objects.filter(ended_at=None).order_by("pk")[:most])


class Triage:
    """Carries bulk answers on, a batch of one of them at a time, in turns; and puts old letters into clusters."""

    def __init__(self) -> None:
        self._last = 0
        self._sizes: dict[int, int] = {}
        self._paces: dict[int, tuple[float, float]] = {}
        self._judged: dict[int, clock.Every] = {}

    def tick(self, limit: int = BATCH) -> bool:
        """One batch; true while there is more to do at once."""
        read = durable(lambda: letters.read(limit))
        seen: set[int] = set()
        while (pk := self._following()) is not None and pk not in seen:
            seen.add(pk)
            self._last = pk
            if self.carry_on(pk, limit):
                return True
        return read >= limit

    def _following(self) -> int | None:
        found = bulk.following(self._last)
        return found if found is not None or self._last == 0 else bulk.following(0)

    def carry_on(self, pk: int, limit: int = BATCH) -> bool:
        """One batch of this one; false when it has ended or waits, for its canary, its rate or another process."""
        answer = BulkAnswer.objects.filter(pk=pk, ended_at=None).first()
        if answer is None or not self._may_go(answer):
            return False
        limit = min(limit, self._sizes.get(pk, BATCH), self._room(answer, limit))
        if limit < 1:
            return False
        try:
            done = durable(lambda: _batch(pk, limit))
        except NotInTransaction:
            raise
        except _Overtaken:
            return True
        except Exception as error:
            if is_read_only(error) or not connections[ALIAS].is_usable():
                raise
            return self._smaller(pk, limit, error)
        failpoints.at("bulk.committed")
        self._sizes[pk] = min(BATCH, 2 * self._sizes.get(pk, BATCH))
        self._spend(pk, done)
        return done is not None

    def _smaller(self, pk: int, limit: int, error: Exception) -> bool:
        """Some letter cannot be answered, for a hook of the site that raises, say: it is found, and left alone."""
        if limit > 1:
            self._sizes[pk] = max(1, limit // 8)
            return True
        log.error("a letter of bulk answer %d cannot be answered and is left alone", pk, exc_info=error)
        locked = sqlstate(error) == LOCK_NOT_AVAILABLE
        return durable(lambda: _batch(pk, 1, "locked" if locked else "broken")) is not None

    def _may_go(self, answer: BulkAnswer) -> bool:
        """Whether neither its canary nor those that failed again hold it up."""
        if answer.canary and answer.canary_letter is not None and answer.going_at is None:
            completed = bulk.canary(answer.canary_letter)
            if completed is False:
                bulk.end(answer.pk, "canary_failed")
            return bool(completed and bulk.let_go(answer.pk))
        if answer.most_failed is None or not self._judged.setdefault(answer.pk, clock.Every(JUDGED_EVERY_S)).due():
            return True
        ended, failed = bulk.fared(answer.pk, JUDGED)
        if ended < JUDGED_FROM or 100 * failed <= answer.most_failed * ended:
            return True
        bulk.end(answer.pk, "too_many_failed")
        return False

    def _room(self, answer: BulkAnswer, limit: int) -> int:
        """How many its rate allows at this moment; what a pause has saved up is two seconds' worth at most."""
        if answer.rate is None:
            return limit
        now = clock.monotonic()
        since, saved = self._paces.get(answer.pk, (now, 1.0))
        saved = min(2.0 * answer.rate, saved + (now - since) * answer.rate)
        self._paces[answer.pk] = (now, saved)
        return int(saved)

    def _spend(self, pk: int, done: int | None) -> None:
        if done is None:
            for kept in (self._sizes, self._paces, self._judged):
                kept.pop(pk, None)  # type: ignore[attr-defined]
        elif pk in self._paces:
            since, saved = self._paces[pk]
            self._paces[pk] = (since, saved - done)


class _Overtaken(Exception):
    """Another process has carried it on from where this batch began: ours is undone."""


def _batch(pk: int, limit: int, leave: str | None = None) -> int | None:
    """Answer the next letters, count them in the same transaction; how many, None: it has ended or is another's.

    `leave`: they are left alone instead, for this reason.
    """
    run(f"SET LOCAL lock_timeout = {LOCK_MS}")
    if not bulk.hold(pk):
        return None
    answer = BulkAnswer.objects.filter(pk=pk, ended_at=None).first()
    if answer is None:
        return None
    if answer.canary and answer.going_at is None:
        # Looked at again: another process may have sent one meanwhile.
        if answer.canary_letter is not None:
            return 0
        limit = 1
    found = matching.oldest(match_of(answer), answer.after, limit)
    done, skipped = _answer(answer, found) if leave is None else ([], Counter({leave: len(found)}))
    after = found[-1] if found else answer.after
    total = dict(Counter(answer.skipped) + skipped)
    canary = done[0] if done and answer.canary else None
    if not bulk.advance(pk, (answer.after, answer.done), after, len(done), total, canary):
        raise _Overtaken
    failpoints.at("bulk.written")
    if len(found) < limit:
        bulk.end(pk, "finished")
        return None
    return len(found)


def _answer(answer: BulkAnswer, found: list[int]) -> tuple[list[int], Counter[str]]:
    """The letters that were answered, and why the others were not."""
    many = dead_letters.requeue_many if answer.verb == "requeue" else dead_letters.discard_many
    answers = many(found, by=answer.by, reason=answer.reason, bulk=answer.pk) if found else []
    done = [letter for letter, said in zip(found, answers, strict=True) if isinstance(said, Moved)]
    return done, Counter(said.reason_code for said in answers if isinstance(said, JobsError))
