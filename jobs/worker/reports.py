"""What has ended here and is not settled yet: kept until the database has answered for it (E8).

Taking an end out of the slots and putting it here cannot fail, so no trouble with the database loses one.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.errors import JobsError
from jobs.outcomes import Failed, Outcome
from jobs.services import settlement
from jobs.services.assignments import Answer, Claimed
from jobs.services.settlement import Report
from jobs.worker.executor import Published, Spoilt
from jobs.worker.output import Output
from jobs.worker.plan import Tally
from jobs.worker.slots import Slots, facts

BATCH = 500
Kept = tuple[Claimed, Report]


class Reports:
    """The ends of a worker's attempts, in order, and what became of them."""

    def __init__(self, slots: Slots, by: str, output: Output, tally: Tally) -> None:
        self._slots, self._by, self._output, self._tally = slots, by, output, tally
        self._kept: list[Kept] = []
        self._spoilt: list[tuple[Claimed, Spoilt]] = []
        # After a surprise, one at a time: a report that cannot be settled must not hold up the others.
        self.alone = False
        # Live attempts that nobody here will end: they are not strays to be given back, their leases decide.
        self._left: set[str] = set()

    def __len__(self) -> int:
        return len(self._kept) + len(self._spoilt)

    @property
    def fences(self) -> list[str]:
        """The attempts that wait to be settled, or for their leases."""
        return [*(r.fence for _, r in self._kept), *(job.fence for job, _ in self._spoilt), *self._left]

    def add(self, job: Claimed, outcome: Outcome) -> None:
        """An end without a handler."""
        self._kept.append((job, Report(job.id, job.fence, outcome)))

    def gather(self) -> bool:
        """Take what ended out of the slots; whether something had."""
        ends = self._slots.collect()
        for live, result in ends:
            if isinstance(result, Published):
                self._tally.completed += 1
                if self._output.level >= 2:
                    self._output("worker.completed", level=2, **facts(live.job))
            elif isinstance(result, Spoilt):
                self._spoilt.append((live.job, result))
            else:
                self._kept.append((live.job, Report(live.job.id, live.job.fence, result)))
        return bool(ends)

    def next(self) -> list[Kept]:
        """What to settle now, and what `settled` expects answers for."""
        self._settle_spoilt()
        return self._kept[: 1 if self.alone else BATCH]

    def drop(self) -> list[Claimed]:
        """Give up the first: whatever keeps it from being settled, its attempt is left to its lease."""
        dropped = [job for job, _ in (self._spoilt[:1] or self._kept[:1])]
        del (self._spoilt or self._kept)[:1]
        self._left |= {job.fence for job in dropped}
        return dropped

    def settled(self, reports: Sequence[Kept], answers: Sequence[Answer]) -> None:
        """These have been answered for."""
        del self._kept[: len(reports)]
        self.alone = self.alone and bool(self._kept)
        for (job, report), answer in zip(reports, answers, strict=True):
            if isinstance(answer, JobsError):
                self._tally.other += 1
                if answer.reason_code == settlement.SettlementRefused.code:
                    self._left.add(job.fence)
                self._output("worker.late", level=1, code=answer.reason_code, **facts(job))
            else:
                self._count(job, report.outcome, answer.state, answer.letter)

    def _settle_spoilt(self) -> None:
        while self._spoilt:
            job, spoilt = self._spoilt[0]
            answer = settlement.spoil(job.id, job.fence, str(spoilt), self._by)
            del self._spoilt[0]
            self._tally.failed += 1
            self._output("worker.invalid_persisted_input", level=0, error=str(spoilt), **facts(job))
            if isinstance(answer, JobsError) and answer.reason_code == "not_claimed":
                # Its first heartbeat came before its handler's turn: from running, this is a plain failure.
                self.add(job, Failed("invalid_persisted_input", str(spoilt), retryable=False))

    def _count(self, job: Claimed, outcome: Outcome, state: str, letter: str | None) -> None:
        by = self._tally.by_state
        by[state] = by.get(state, 0) + 1
        if state == "completed":
            self._tally.completed += 1
            if self._output.level >= 2:
                self._output("worker.completed", level=2, **facts(job))
        elif isinstance(outcome, Failed):
            self._tally.failed += 1
            what = {"queued": "worker.will_retry", "failed": "worker.failed"}.get(state, f"worker.{state}")
            self._output(what, level=1, code=outcome.code, letter=letter, error=outcome.message[-200:], **facts(job))
        else:
            self._tally.other += 1
            self._output("worker.handed_back" if state == "queued" else f"worker.{state}", level=1, **facts(job))
