"""What has ended here and is not settled yet: kept until the database has answered for it (E8).

Taking an end out of the slots and putting it here cannot fail, so no trouble with the database loses one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jobs import clock
from jobs.diagnostics import Snapshot
from jobs.errors import JobsError
from jobs.outcomes import Failed, Outcome, final_status, refused_status
from jobs.services import attempt_logs, settlement
from jobs.services.assignments import Answer, Claimed, Locked
from jobs.services.settlement import Report
from jobs.states import State
from jobs.worker.credentials import masked_result
from jobs.worker.executor import Published, Spoilt
from jobs.worker.lines import Lines
from jobs.worker.output import Output
from jobs.worker.plan import Tally
from jobs.worker.slots import Slots, facts

BATCH = 500
# When to look again at a row that somebody holds.
LOCKED_S = 1.0
Kept = tuple[Claimed, Report]


class Reports:
    """The ends of a worker's attempts, in order, and what became of them."""

    def __init__(self, slots: Slots, by: str, output: Output, tally: Tally) -> None:
        self._slots, self._by, self._output, self._tally = slots, by, output, tally
        self._kept: list[Kept] = []
        self._spoilt: list[tuple[Claimed, Spoilt]] = []
        # Their rows are held by somebody's open transaction: they wait aside and hold up nobody.
        self._locked: list[Kept] = []
        self._locked_spoilt: list[tuple[Claimed, Spoilt]] = []
        self._unlocks = clock.Every(LOCKED_S)
        # After a surprise, one at a time: a report that cannot be settled must not hold up the others.
        self.alone = False
        # Live attempts that nobody here will end: they are not strays to be given back, their leases decide.
        self._left: set[str] = set()
        # Lines to keep beside attempts, by fence, once their settlements are through.
        self._lines: list[tuple[str, Lines]] = []
        # The latest diagnostics of what has failed, by fence, until that is said (B32).
        self._noted: dict[str, Snapshot] = {}

    def __len__(self) -> int:
        return len(self._kept) + len(self._spoilt) + len(self._locked) + len(self._locked_spoilt)

    @property
    def ready(self) -> bool:
        """Whether there is something to settle now."""
        return bool(self._kept)

    def wait_s(self) -> float:
        """Seconds until something that waits aside is looked at again."""
        return self._unlocks.wait_s() if self._locked or self._locked_spoilt else math.inf

    @property
    def fences(self) -> list[str]:
        """The attempts that wait to be settled, or for their leases."""
        waiting = [job.fence for job, _ in [*self._spoilt, *self._locked_spoilt]]
        return [*(r.fence for _, r in [*self._kept, *self._locked]), *waiting, *self._left]

    def add(self, job: Claimed, outcome: Outcome, unknown: str | None = None) -> None:
        """An end without a handler; `unknown` names the type that nobody here knows."""
        self._kept.append((job, Report(job.id, job.fence, outcome, unknown)))

    def gather(self) -> bool:
        """Take what ended out of the slots; whether something had."""
        ends = self._slots.collect()
        for live, result in ends:
            if live.run.masks:
                result = masked_result(result, live.run.masks)
                if live.run.lines is not None:
                    live.run.lines.masks = live.run.masks
            if live.run.lines is not None:
                self._lines.append((live.job.fence, live.run.lines))
            if live.run.noted is not None and isinstance(result, Failed):
                self._noted[live.job.fence] = live.run.noted
            if isinstance(result, Published):
                self._tally.completed += 1
                if self._output.level >= 2:
                    self._output("worker.completed", level=2, **facts(live.job))
            elif isinstance(result, Spoilt):
                self._spoilt.append((live.job, result))
            else:
                self._kept.append((live.job, Report(live.job.id, live.job.fence, result)))
        return bool(ends)

    def keep_lines(self) -> None:
        """Keep the log lines of what has ended beside its attempts: after the settlements, and as far as may be."""
        if self._lines:
            lines, self._lines = self._lines, []
            attempt_logs.keep([(fence, kept.text(), kept.dropped) for fence, kept in lines])

    def next(self) -> list[Kept]:
        """What to settle now, and what `settled` expects answers for."""
        if self._unlocks.due():
            self._spoilt += self._locked_spoilt
            self._locked_spoilt = []
            self._settle_locked()
        self._settle_spoilt()
        self.alone = self.alone and bool(self._kept)
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
        self._heard(reports, answers)

    def _heard(self, reports: Sequence[Kept], answers: Sequence[Answer]) -> None:
        for (job, report), answer in zip(reports, answers, strict=True):
            if isinstance(answer, Locked):
                self._locked.append((job, report))
                self._unlocks.after(LOCKED_S)
                continue
            noted = self._noted.pop(job.fence, None) if self._noted else None
            if isinstance(answer, JobsError):
                self._tally.other += 1
                if answer.reason_code == settlement.SettlementRefused.code:
                    self._left.add(job.fence)
                self._output("worker.late", level=1, code=answer.reason_code, diagnostic=noted,
                             result_status=refused_status(answer.reason_code, answer.facts.get("status")), **facts(job))
            else:
                self._count(job, report.outcome, answer.state, answer.letter, noted)

    def _settle_locked(self) -> None:
        if not self._locked:
            return
        locked, self._locked = self._locked[:BATCH], self._locked[BATCH:]
        try:
            answers = settlement.settle_free([r for _, r in locked], self._by)
        except BaseException:
            # Among the others, where it is found out which one it was.
            self._kept += locked
            raise
        self._heard(locked, answers)

    def _settle_spoilt(self) -> None:
        while self._spoilt:
            job, spoilt = self._spoilt[0]
            answer = settlement.spoil(job.id, job.fence, str(spoilt), self._by)
            del self._spoilt[0]
            if isinstance(answer, Locked):
                self._locked_spoilt.append((job, spoilt))
                continue
            self._tally.failed += 1
            self._output("worker.invalid_persisted_input", level=0, error=str(spoilt), **facts(job))
            if isinstance(answer, JobsError) and answer.reason_code == "not_claimed":
                # Its first heartbeat came before its handler's turn: from running, this is a plain failure.
                self.add(job, Failed("invalid_persisted_input", str(spoilt), retryable=False))

    def _count(self, job: Claimed, outcome: Outcome, state: str, letter: str | None, noted: Snapshot | None) -> None:
        by = self._tally.by_state
        by[state] = by.get(state, 0) + 1
        if state == "completed":
            self._tally.completed += 1
            if self._output.level >= 2:
                self._output("worker.completed", level=2, **facts(job))
        elif isinstance(outcome, Failed):
            self._tally.failed += 1
            what = {"queued": "worker.will_retry", "failed": "worker.failed"}.get(state, f"worker.{state}")
            self._output(what, level=1, code=outcome.code, letter=letter, error=outcome.message[-200:],
                         diagnostic=noted, result_status=final_status(State.FAILED, outcome.code), **facts(job))
        else:
            self._tally.other += 1
            self._output("worker.handed_back" if state == "queued" else f"worker.{state}", level=1,
                         result_status=final_status(state), **facts(job))
