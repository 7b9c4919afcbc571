"""What a handler gets: who it is, how long it may run, whether to stop, and where to report."""

from __future__ import annotations

import threading
from datetime import datetime
from decimal import Decimal
from typing import Any

from jobs import clock, codecs
from jobs.conf import conf
from jobs.diagnostics import Snapshot, snapshot
from jobs.errors import Invalid, JobError
from jobs.outcomes import Failed
from jobs.redaction import masked
from jobs.registry import Definition
from jobs.services import commands, costs, overtime, progress, words
from jobs.services.assignments import Claimed
from jobs.services.commands import Command
from jobs.worker import tenants
from jobs.worker.inbox import Inbox
from jobs.worker.lines import Lines

# Lazily made events are made by one thread only; again by the same one, since what the collector ends may log.
_making = threading.RLock()

# Handlers say what they cost from any of their threads; of two sums at once the smaller one changes nothing.
_counting = threading.Lock()

# After these the attempt has been given up here; after any other stop a completion still wins (E1).
TOO_LATE = frozenset({"attempt_timeout", "duration_exceeded", "publish_timeout", "claim_lost"})


class Stopped(JobError):
    """Raised by `run.check()` once the job should stop."""

    def __init__(self, reason: str) -> None:
        super().__init__("stopped", f"The job was asked to stop: {reason}", retryable=True)
        self.reason = reason


class Run:
    """One attempt, as its handler sees it. Safe to use from any thread of the handler."""

    __slots__ = ("_by", "_cost", "_credential", "_inbox", "_job", "_staged", "_stop", "definition", "lines", "masks",
                 "noted", "over", "publishing", "settled", "stop_reason", "until")

    def __init__(self, job: Claimed, definition: Definition, by: str) -> None:
        self._job = job
        self._by = by
        self._stop: threading.Event | None = None
        self._credential: Any = None
        # What must not be kept of it.
        self.masks: tuple[str, ...] = ()
        self._inbox: Inbox | None = None
        self.definition = definition
        # The log lines so far, if there are any.
        self.lines: Lines | None = None
        self.stop_reason: str | None = None
        # Its latest diagnostic; how often it has reported a stage, and which last.
        self.noted: Snapshot | None = None
        self._staged: tuple[int, str] | None = None
        # What it has cost by its handler's word.
        self._cost = Decimal(0)
        # It has ended: what its handler says later is nothing.
        self.over = False
        # Its hook or its transaction has committed: this attempt's end is no news to its worker.
        self.settled = False
        # Its publication hook runs, and `until` is the hook's.
        self.publishing = False
        # The steady clock's moment at which the attempt's time is over; None: never.
        self.until: float | None = None
        if job.max_duration_ms is not None:
            self.begin_time()
        elif job.timeout_ms is not None:
            self.until = clock.monotonic() + job.timeout_ms / 1000

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def tenant_id(self) -> int:
        """Whose job it is."""
        return self._job.tenant_id

    @property
    def attempt_id(self) -> str:
        """The attempt's id: a capability, for nobody outside."""
        return self._job.fence

    @property
    def input(self) -> Any:
        """The typed input, decoded anew each time: what a publication hook sees, no handler can have changed (B33)."""
        return self.definition.input.decode(self._job.input)

    @property
    def claims(self) -> int:
        """The fencing number for the world outside: never falls, across requeues too (E14.22)."""
        return self._job.claims

    @property
    def idempotency_key(self) -> str:
        """Stable over the attempts of this job's chain: name external effects by it (D14)."""
        return f"{self._job.id}:{self._job.chain}"

    @property
    def attempt_key(self) -> str:
        """Of this attempt alone, for what each of them does anew in the world outside (D14)."""
        return f"{self.idempotency_key}:{self._job.claims}"

    @property
    def deadline(self) -> datetime | None:
        """The job's own deadline, if it has one (C15)."""
        return self._job.deadline_at

    @property
    def target(self) -> tuple[int, int] | None:
        """Target id and generation of this job, if it is about a target (B16)."""
        job = self._job
        return None if job.target_id is None or job.generation is None else (job.target_id, job.generation)

    @property
    def tenant(self) -> str | None:
        """The subject of the tenant whose job it is; None for a job without one."""
        return tenants.asked(self._job.tenant_id)

    @property
    def credential(self) -> Any:
        """The secret of the tenant's owner, as the site's resolver gave it; None where the definition asks for none.

        It lives here alone: from what is kept of the attempt its very words are left out (E10).
        """
        return self._credential

    def hold(self, credential: Any, masks: tuple[str, ...]) -> None:
        """Called by the executor before the handler: what it runs with, and what must not be kept of that."""
        self._credential, self.masks = credential, masks

    @property
    def facts(self) -> dict[str, Any]:
        """What every log line made within this attempt says of it; never its fence (A64)."""
        return {"job": self._job.id, "attempt": self._job.claims, "type": self.definition.name,
                "tenant": tenants.subject(self._job.tenant_id)}

    def log(self, line: str) -> str:
        """Keep a log line beside the attempt, unless the definition says no; the line as it may be shown."""
        line = masked(line, self.masks) if self.masks else line
        if self.definition.logs:
            with _making:
                if self.lines is None:
                    self.lines = Lines()
            self.lines.add(line)
        return line

    @property
    def stopping(self) -> bool:
        """Whether the job should stop: aborted, cancelled, timed out, or the worker is shutting down (B26)."""
        return self.stop_reason is not None

    def check(self) -> None:
        """Raise when the job should stop: a handler calls this between its steps."""
        if self.stop_reason is not None:
            raise Stopped(self.stop_reason)

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the job should stop; whether it should."""
        with _making:
            self._stop = self._stop or threading.Event()
        return self.stopping or self._stop.wait(seconds)

    def stop(self, reason: str) -> None:
        """Called by the worker: ask the handler to stop."""
        if self.stop_reason is None or reason in TOO_LATE:
            # What nothing can be done about any more is said whatever was asked before.
            self.stop_reason = reason
        if self._stop is not None:
            self._stop.set()
        if self._inbox is not None:
            self._inbox.ring()

    def heard(self) -> None:
        """Called by the worker: commands to this job are unread."""
        if self._inbox is not None:
            self._inbox.ring()

    def begin_time(self) -> None:
        """From now on the attempt's time runs: its timeout or its duration, whichever ends first (E8)."""
        ends = self._job.max_duration_ms if self._ends_for_good else self._job.timeout_ms
        self.until = None if ends is None else clock.monotonic() + ends / 1000

    @property
    def _ends_for_good(self) -> bool:
        most, timeout = self._job.max_duration_ms, self._job.timeout_ms
        return most is not None and (timeout is None or most <= timeout)

    def begin_publishing(self, seconds: float) -> None:
        """Called by the executor: from now on the attempt ends with its publication hook's time, if not before."""
        until = clock.monotonic() + seconds
        if self.until is None or until < self.until:
            self.until, self.publishing = until, True

    def note_settled(self) -> None:
        """Called by the executor once the attempt's completion is committed."""
        self.settled = True

    def timed_out(self) -> Failed:
        """What it means that `until` has passed (B26, B33, C34)."""
        if self.publishing:
            return Failed("publish_timeout", f"The publication hook did not commit within {conf().PUBLISH_S:g} s.")
        if self._ends_for_good:
            return overtime.SPENT
        return Failed("attempt_timeout", f"The attempt ran longer than {self._job.timeout_ms} ms.")

    def progress(self, stage: str, event: str = "started") -> None:
        """Record a declared stage as `started` or `completed`; the same twice in a row is said once (B30).

        Raises Invalid for an undeclared stage, and TooMuchProgress after 1,000 of them.
        """
        progress.check_stage(self.definition, stage, event)
        times, latest = self._staged or (0, "")
        if latest == f"{stage} {event}":
            return
        if times >= progress.MOST:
            raise progress.TooMuchProgress()
        progress.stage(self.definition, self._job.id, self._job.fence, stage, event, self._by, attempt=self._job.claims)
        self._staged = times + 1, f"{stage} {event}"

    def diagnostic(self, /, **fields: bool | int | str) -> None:
        """Say how it goes, for the log alone: the latest fields are reported if the attempt fails or times out (B32).

        At most 16: truth values, whole numbers from 0 on, lowercase tokens. Raises Invalid invalid_diagnostic.
        """
        said = snapshot(fields)
        if not self.over:
            self.note(said)

    def note(self, said: Snapshot) -> None:
        """Keep the latest diagnostic."""
        self.noted = {name: masked(value, self.masks) if isinstance(value, str) else value
                      for name, value in said.items()} if self.masks else said

    def checkpoint(self, value: Any) -> int:
        """Keep resume data, a JSON value; the next attempt finds it. Its number (C33).

        Raises Invalid secret_in_checkpoint for one that holds the owner's credential.
        """
        if self.masks and any(secret in codecs.canonical(value) for secret in self.masks):
            raise Invalid("The checkpoint holds the owner's credential.", field="checkpoint",
                          code="secret_in_checkpoint")
        return progress.next_checkpoint(self._job.id, self._job.fence, value, self._by)

    def commands(self, wait_s: float = 0) -> list[Command]:
        """The commands to this job that are new to this attempt, the oldest first, waiting up to `wait_s` for one (A6).

        Each is handed out once an attempt, and again to the next one until it is consumed: say so by `consume` when it
        is dealt with, so that none is lost with its reader. An abort is none of them: it asks to stop (`stopping`).
        """
        return self._opened().wait(wait_s)

    async def acommands(self, wait_s: float = 0) -> list[Command]:
        """`commands` for a handler on the loop."""
        return await self._opened().wait_async(wait_s)

    def _opened(self) -> Inbox:
        with _making:
            if self._inbox is None:
                self._inbox = Inbox(self._job.id, self._job.fence, lambda: self.stopping)
        return self._inbox

    def consume(self, *read: Command | str) -> int:
        """These commands are dealt with: a receipt says so, and no later attempt gets them. How many were unread (E12).

        Commits by itself. Raises StaleFence where the claim is gone, Invalid for what is no command to this job.
        """
        ids = [command if isinstance(command, str) else command.id for command in read]
        return commands.consume(self._job.id, self._job.fence, ids, self._by)

    def cost(self, usd: Any) -> Decimal | None:
        """Say that this attempt has cost so many US dollars more; what its job may still cost, None: anything (C12).

        A number or a decimal text; commits by itself. Raises JobError budget_exhausted, which is never retried, once
        the job has cost more than it may over all its attempts; StaleFence where the claim is gone; Invalid. What was
        said while the database was away is kept, and counts with the next word: it is not to be said again.
        """
        more = words.cost_usd(usd)
        with _counting:
            self._cost += more
            total = self._cost
        cost = costs.report(self._job.id, self._job.fence, total)
        if cost.over:
            over = costs.outcome(cost)
            raise JobError(over.code, over.message, retryable=False)
        return cost.left

    @property
    def last_checkpoint(self) -> Any:
        """What the latest checkpoint kept, or None (C33)."""
        return progress.read(self._job.checkpoint)
