"""The pool of isolated children: starts them, hands them jobs, hears their ends, kills them and says why they died.

One long-lived thread does it all, since a child is killed when the *thread* that made it ends, and needs no database:
others only ask it. As many children as slots, one of them ready before it is needed.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobs import clock
from jobs.conf import conf
from jobs.outcomes import Failed, Interrupted
from jobs.worker import tenants, wire
from jobs.worker.away import Away
from jobs.worker.connection import sentence
from jobs.worker.echo import Echo
from jobs.worker.executor import PUBLISHED, Result
from jobs.worker.guarding import PING_S, Guard, believed_s
from jobs.worker.output import Output, Silent
from jobs.worker.process import Child, Stage, meaning, reap_orphans, worn
from jobs.worker.starting import Starts
from jobs.worker.wire import Garbled, Message

if TYPE_CHECKING:
    from jobs.worker.slots import Live

log = logging.getLogger("jobs.worker")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
TICK_S = 0.25
START_S = 60.0
LEAVE_S = 1.0
# A process that does not die by SIGKILL hangs in the kernel; its attempt does not wait for it.
UNDEAD_S = 5.0
CLOSE_S = 4.0
AT_ONCE = max(2, os.cpu_count() or 2)
COUNTED = frozenset({Stage.STARTING, Stage.IDLE, Stage.BUSY})


class Children:
    """At most `size` children; `on_end(live, result)` is called from the pool's thread."""

    def __init__(self, size: int, by: str, on_end: Callable[[Live, Result], None]) -> None:
        self._size, self._by, self._on_end = size, by, on_end
        # What takes events, and the log records of children: the worker's output.
        self.say: Output | Silent = Silent()
        self._thread: threading.Thread | None = None
        self._asked: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._waiting: deque[Live] = deque()
        self._all: dict[int, Child] = {}
        self._orphans: set[int] = set()
        self._closing = False
        self._ends_at = 0.0
        self._starts = Starts()
        self._believed_s = 0.0
        self._pings = clock.Every(PING_S)
        self._ticks = clock.Every(TICK_S)

    # -- asked from other threads ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and with it the first child; once."""
        if self._thread is not None or self._closing:
            return
        self._selector = selectors.DefaultSelector()
        self._heard_at, self._bell = os.pipe()
        for end in (self._heard_at, self._bell):
            os.set_blocking(end, False)
        self._selector.register(self._heard_at, READ, (self._answer, None))
        self._console: int | None = None
        with suppress(OSError):
            self._console = os.dup(2)
        self._guard, self._echo = Guard(), Echo()
        thread = threading.Thread(target=self._run, name="jobs-children", daemon=True)
        thread.start()
        self._thread = thread

    def submit(self, live: Live, run: Away) -> None:
        """Run this attempt in the next child that is free."""
        self.start()
        run.tell = lambda message: self._ask(self._tell, live, message)
        self._ask(self._waiting.append, live)

    def cancel(self, live: Live) -> None:
        """Cancel its handler if that can be cancelled."""
        self._ask(self._tell, live, {"cancel": True})

    def kill(self, live: Live) -> None:
        """Kill its child and all that this has started; the attempt ends once it is dead."""
        self._ask(self._kill, live)

    def close(self) -> None:
        """End all children, the guard and the thread."""
        self._closing = True
        if self._thread is None:
            return
        self._ask(self._close)
        self._thread.join(CLOSE_S + 2)

    def _ask(self, work: Callable[..., None], *args: Any) -> None:
        self._asked.append((work, args))
        with suppress(OSError, AttributeError):
            os.write(self._bell, b"\0")

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._echo.start()
        while not (self._closing and self._ends_at and (not self._all or clock.monotonic() > self._ends_at)):
            try:
                self._round()
            except Exception:
                log.exception("the pool of isolated children stumbled; it goes on")
                clock.sleep(TICK_S)
        self._guard.close()
        self._echo.ask_end()
        self._selector.close()
        if self._console is not None:
            os.close(self._console)
        for end in (self._heard_at, self._bell):
            os.close(end)
        self._echo.join(LEAVE_S)

    def _round(self) -> None:
        if self._ticks.due():
            self._tick()
        self._assign()
        for key, events in self._selector.select(TICK_S if self._all or self._waiting else 1.0):
            work, child = key.data
            # One that was buried by another event of this round hears no more.
            if child is None:
                work()
            elif self._all.get(child.pid) is child:
                work(child, events)
        while self._asked:
            work, args = self._asked.popleft()
            work(*args)

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._heard_at, 4096)

    def _tick(self) -> None:
        now = clock.monotonic()
        if self._pings.due() and self._all:
            self._ping()
        self._orphans = {group for group in self._orphans if reap_orphans(group)}
        for child in list(self._all.values()):
            self._look_at(child, now - child.since)

    def _look_at(self, child: Child, stage_s: float) -> None:
        if child.pidfd is None and child.is_dead():
            self._bury(child)
        elif stage_s > {Stage.STARTING: START_S, Stage.LEAVING: LEAVE_S}.get(child.stage, stage_s):
            child.kill()
        elif child.stage is Stage.IDLE and (why := worn(child)):
            self._recycle(child, why)
        elif child.stage is Stage.KILLED and stage_s > UNDEAD_S and child.live is not None:
            self._died(child, "does not die")

    def _ping(self) -> None:
        self._guard.mark(self._all.values())
        leases = [c.live.job.lease_ms / 1000 for c in self._all.values() if c.live is not None]
        self._believed_s = min(map(believed_s, leases or [conf().LEASE_S]))
        self._guard.ping(self._believed_s)

    # -- giving jobs to children -------------------------------------------------------------------------

    def _assign(self) -> None:
        if self._waiting:
            idle = [c for c in self._all.values() if c.stage is Stage.IDLE]
            while self._waiting and idle:
                live = self._waiting.popleft()
                if live.ended:
                    continue
                if live.run.stopping:
                    self._end(live, live.verdict or Interrupted())
                else:
                    self._hand(idle.pop(), live)
        if not self._closing:
            self._grow()

    def _hand(self, child: Child, live: Live) -> None:
        live.child = child
        live.run.handed_out()  # type: ignore[attr-defined]
        child.begin(live, {"run": wire.claimed_words(live.job), "by": self._by, **tenants.told(live.job.tenant_id)})
        self._listen(child)
        if believed_s(live.job.lease_ms / 1000) < self._believed_s:
            self._ping()

    def _grow(self) -> None:
        """Start what is missing: a child for each job that waits, and one that waits for a job."""
        stages = [c.stage for c in self._all.values() if c.stage in COUNTED]
        starting = stages.count(Stage.STARTING)
        lack = len(self._waiting) + 1 - starting - stages.count(Stage.IDLE)
        if lack <= 0:
            return
        if self._starts.wait:
            if not starting:
                self._hand_back()
            return
        for _ in range(min(lack, self._size - len(stages), AT_ONCE - starting)):
            if not self._spawn():
                return

    def _spawn(self) -> bool:
        try:
            child = Child(self._console, self.say.level)
        except OSError as error:
            self._failed(sentence(error))
            return False
        self._all[child.pid] = child
        self._guard.add(child.pid)
        self._ping()
        self._selector.register(child.out, READ, (self._read, child))
        if child.pidfd is not None:
            self._selector.register(child.pidfd, READ, (lambda child, _: self._bury(child), child))
        self._listen(child)
        return True

    def _listen(self, child: Child) -> None:
        """Hear it, and wait until it takes what is not sent yet."""
        if child.mute:
            return
        events = READ | (WRITE if child.flush() else 0)
        with suppress(KeyError):
            self._selector.unregister(child.wire)
        self._selector.register(child.wire, events, (self._hear, child))

    def _failed(self, reason: str) -> None:
        """No child could be started, which is no failure of a job (E1)."""
        pause, worth_a_line = self._starts.failed()
        if worth_a_line:
            self.say("worker.child_failed", level=0, error=reason, tried=self._starts.failures, again_in_s=pause)

    def _hand_back(self) -> None:
        pause_us = self._starts.pause_us
        while self._waiting:
            live = self._waiting.popleft()
            self._end(live, live.verdict or Interrupted("no_child", pause_us))

    # -- hearing them ------------------------------------------------------------------------------------

    def _hear(self, child: Child, events: int) -> None:
        if events & WRITE:
            self._listen(child)
        if not events & READ or child.mute:
            return
        try:
            messages, over = child.hear()
            for message in messages:
                self._heard(child, message)
        except Garbled as error:
            log.warning("isolated child %d: %s", child.pid, error)
            child.kill()
            return
        if over:
            child.mute = True
            self._selector.unregister(child.wire)
            if child.stage is not Stage.LEAVING:
                child.kill()

    def _heard(self, child: Child, message: Message) -> None:
        if "end" in message:
            self._ended(child, message)
        elif "ready" in message:
            self._starts.succeeded()
            if child.stage is Stage.STARTING:
                child.rest()
        elif "said" in message:
            self.say.write("log", dict(message["said"]))
        elif "begun" in message:
            child.begun = True
        elif child.live is not None and isinstance(child.live.run, Away):
            child.live.run.said(message)

    def _read(self, child: Child, _: int) -> None:
        child.kept_back, over = child.printed()
        if over:
            self._selector.unregister(child.out)
        if child.live is not None and child.live.run.definition.credential != "none":
            # What to leave out of its lines was said before they were printed, by the other way (E10).
            self._hear(child, READ)
        self._keep(child, [])

    def _keep(self, child: Child, lines: list[str]) -> None:
        lines, child.kept_back = [*child.kept_back, *lines], []
        for line in lines:
            if child.live is not None:
                line = child.live.run.log(line)
            self._echo.say(line)

    def _ended(self, child: Child, message: Message) -> None:
        live = child.live
        if live is None:
            return
        self._keep(child, child.all_printed())
        if message["end"].get("is") == "Cancelled":
            result: Result = live.verdict or Failed("attempt_error", "The handler cancelled itself.")
        else:
            result = wire.result(message["end"])
        child.live = None
        if child.stage is Stage.BUSY:
            child.rest()
            self._recycle_if_worn(child, message)
        self._end(live, result)

    def _end(self, live: Live, result: Result) -> None:
        live.child = None
        if isinstance(live.run, Away):
            live.run.tell = None
        self._on_end(live, result)

    # -- ending them -------------------------------------------------------------------------------------

    def _recycle_if_worn(self, child: Child, message: Message) -> None:
        if message.get("left"):
            # Something of that job may still run.
            self.say("worker.child_recycled", level=2, why=message["left"], pid=child.pid)
            child.kill()
        elif why := worn(child, message.get("mb", 0)):
            self._recycle(child, why)

    def _recycle(self, child: Child, why: str) -> None:
        self.say("worker.child_recycled", level=2, why=why, pid=child.pid, jobs=child.jobs)
        child.leave()

    def _tell(self, live: Live, message: Message) -> None:
        if live.child is None:
            self._not_begun(live)
        else:
            live.child.send(message)
            self._listen(live.child)

    def _kill(self, live: Live) -> None:
        if live.child is None:
            self._not_begun(live)
        else:
            live.child.kill()

    def _not_begun(self, live: Live) -> None:
        """It waits for a child that it no longer needs."""
        if live in self._waiting:
            self._waiting.remove(live)
            self._end(live, live.verdict or Interrupted())

    def _bury(self, child: Child) -> None:
        """It is dead: what it said before counts, then its group goes too, and then its number is free."""
        self._guard.mark(self._all.values())
        with suppress(Garbled):
            for message in child.hear(wire.MOST_BYTES)[0]:
                self._heard(child, message)
        self._keep(child, child.all_printed())
        child.kill()
        self._guard.drop(child.pid)
        for end in (child.wire, child.out, child.pidfd):
            if end is not None:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(end)
        child.reap()
        del self._all[child.pid]
        self._orphans.add(child.pid)
        if child.live is not None:
            self._died(child, child.how())
        elif not (child.jobs or child.asked_to_leave or self._closing):
            self._failed(f"it {child.how()}: {(child.last_words().splitlines() or ['it said nothing'])[-1]}")

    def _died(self, child: Child, how: str) -> None:
        live, child.live = child.live, None
        if live is None:
            return
        if live.run.settled:
            result: Result = PUBLISHED
        else:
            result = live.verdict or meaning(child, how)
        if live.verdict is None:
            self.say("worker.child_died", level=1, how=how, pid=child.pid, job=live.job.id)
        self._end(live, result)

    def _close(self) -> None:
        self._ends_at = clock.monotonic() + CLOSE_S
        for live in list(self._waiting):
            self._not_begun(live)
        for child in self._all.values():
            if child.stage is Stage.IDLE:
                child.leave()
            elif child.stage is not Stage.LEAVING:
                child.kill()
