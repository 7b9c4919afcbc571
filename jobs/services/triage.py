"""Dead letters and jobs by the thousand: one verb for all that match (DESIGN 7.3, RELIABILITY 6.2).

What matches is fixed when a bulk operation is begun, and gathered into its set before anything is done; `Triage`, a
duty with one leader, then does it batch by batch, each in a short transaction that also counts it and notes what
became of each, so that what is shown as done is done. What has changed meanwhile is refused like any other, and told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db import connections

from jobs import clock, failpoints
from jobs.errors import JobsError
from jobs.models import BulkOperation
from jobs.services import cancellation, dead_letters
from jobs.services.operations import DUTY as DUTY
from jobs.services.operations import match_of
from jobs.store import bulk, letters, matching, meant
from jobs.store.bulk import Item
from jobs.store.matching import Match
from jobs.store.moves import Answer
from jobs.store.sql import ALIAS, NotInTransaction, durable, is_read_only, run, sqlstate

log = logging.getLogger("jobs.triage")
DONE = "done"
BATCH = 500
# So many are looked at in one transaction to gather what is meant.
GATHERED = 5_000
LOCK_MS = 2_000
LOCK_NOT_AVAILABLE = "55P03"
# A rate that is judged by too few jobs says nothing; by too many, it is old.
JUDGED_FROM, JUDGED = 10, 1_000
JUDGED_EVERY_S = 1.0


class Triage:
    """Carries bulk operations on, a batch of one of them at a time, in turns; and puts old letters into clusters."""

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
        asked = BulkOperation.objects.filter(pk=pk, ended_at=None).first()
        if asked is None:
            return False
        if asked.total is None and (more := self._gather(pk)) is not False:
            return more is True
        if not self._may_go(asked):
            return False
        limit = min(limit, self._sizes.get(pk, BATCH), self._room(asked, limit))
        return limit > 0 and self._carry_on(pk, limit)

    def _gather(self, pk: int) -> bool | None:
        try:
            return durable(lambda: _gather(pk))
        except _Overtaken:
            return True

    def _carry_on(self, pk: int, limit: int) -> bool:
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
        """Some item cannot be done, for a hook of the site that raises, say: it is found, and left alone."""
        if limit > 1:
            self._sizes[pk] = max(1, limit // 8)
            return True
        log.error("an item of bulk operation %d cannot be done and is left alone", pk, exc_info=error)
        locked = sqlstate(error) == LOCK_NOT_AVAILABLE
        return durable(lambda: _batch(pk, 1, "locked" if locked else "broken")) is not None

    def _may_go(self, asked: BulkOperation) -> bool:
        """Whether neither its canary nor those that failed again hold it up."""
        if asked.canary and asked.canary_letter is not None and asked.going_at is None:
            completed = bulk.canary(asked.canary_letter)
            if completed is False:
                bulk.end(asked.pk, "canary_failed")
            return bool(completed and bulk.let_go(asked.pk))
        if asked.most_failed is None or not self._judged.setdefault(asked.pk, clock.Every(JUDGED_EVERY_S)).due():
            return True
        ended, failed = bulk.fared(asked.pk, JUDGED)
        if ended < JUDGED_FROM or 100 * failed <= asked.most_failed * ended:
            return True
        bulk.end(asked.pk, "too_many_failed")
        return False

    def _room(self, asked: BulkOperation, limit: int) -> int:
        """How many its rate allows at this moment; what a pause has saved up is two seconds' worth at most."""
        if asked.rate is None:
            return limit
        now = clock.monotonic()
        since, saved = self._paces.get(asked.pk, (now, 1.0))
        saved = min(2.0 * asked.rate, saved + (now - since) * asked.rate)
        self._paces[asked.pk] = (now, saved)
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


def _held(pk: int) -> BulkOperation | None:
    """This one, as it stands, kept from others until the commit; None: it has ended, or another process has it."""
    run(f"SET LOCAL lock_timeout = {LOCK_MS}")
    return BulkOperation.objects.filter(pk=pk, ended_at=None).first() if bulk.hold(pk) else None


def _gather(pk: int) -> bool | None:
    """Gather the next of what it means; true while there is more of it, false once all is there, None: not ours."""
    asked = _held(pk)
    if asked is None:
        return None
    if asked.total is not None:
        return False
    match = match_of(asked)
    look = matching.gather if isinstance(match, Match) else meant.gather
    number, mark = look(match, pk, asked.mark, asked.gathered, GATHERED)  # type: ignore[arg-type]
    if not bulk.gathered(pk, (asked.mark, asked.gathered), mark, asked.gathered + number, mark is None):
        raise _Overtaken
    failpoints.at("bulk.gathered")
    return mark is not None


def _batch(pk: int, limit: int, leave: str | None = None) -> int | None:
    """Do the next items, count them in the same transaction; how many, None: it has ended or is another's.

    `leave`: they are left alone instead, for this reason.
    """
    asked = _held(pk)
    if asked is None:
        return None
    if asked.canary and asked.going_at is None:
        # Looked at again: another process may have sent one meanwhile.
        if asked.canary_letter is not None:
            return 0
        limit = 1
    found = bulk.items(pk, asked.after, limit)
    outcomes = _outcomes(asked, found) if leave is None else [leave] * len(found)
    if found:
        bulk.tell(pk, [(item.number, word) for item, word in zip(found, outcomes, strict=True)])
    done = [item for item, word in zip(found, outcomes, strict=True) if word == DONE]
    skipped = Counter(asked.skipped) + Counter(word for word in outcomes if word != DONE)
    canary = done[0].letter_id if done and asked.canary else None
    after = found[-1].number if found else asked.after
    if not bulk.advance(pk, (asked.after, asked.done), after, len(done), dict(skipped), canary):
        raise _Overtaken
    failpoints.at("bulk.written")
    if len(found) < limit:
        bulk.end(pk, "finished")
        return None
    return len(found)


def _outcomes(asked: BulkOperation, found: list[Item]) -> list[str]:
    """What became of each: done, or the code of the refusal."""
    if not found:
        return []
    said: dict[str, Any] = {"by": asked.by, "reason": asked.reason, "bulk": asked.pk}
    jobs, picked = [item.job_id for item in found], [item.letter_id or 0 for item in found]
    answers: Sequence[Answer]
    match asked.verb:
        case "requeue":
            answers = dead_letters.requeue_many(picked, limited=asked.limited, **said)
        case "discard":
            answers = dead_letters.discard_many(picked, **said)
        case "cancel":
            answers = cancellation.cancel_many(jobs, allow_archived=asked.allow_archived, **said)
        case "pause":
            answers = cancellation.pause_many(jobs, **said)
        case _:
            answers = cancellation.resume_many(jobs, **said)
    return [_word_of(answer) for answer in answers]


def _word_of(answer: Answer) -> str:
    if isinstance(answer, JobsError):
        return answer.reason_code[:64]
    # Somebody else has cancelled it since it was gathered.
    return "already_cancelled" if answer.repeated else DONE
