"""The worker: settle what ended and claim for the free slots in one transaction, again and again (DESIGN 5).

One thread does all claims and settlements; handlers run on a loop or in threads (`slots`), heartbeats, wakes and the
watch have threads of their own. Trouble with the database is waited out with everything that is unsettled kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from jobs import clock, failpoints
from jobs.conf import conf, registry
from jobs.outcomes import Interrupted, ResultStatus
from jobs.registry import Definition
from jobs.routing import SYSTEM
from jobs.services import assignments, duties, recovery, settlement, traffic, workers
from jobs.services.assignments import Answer, Batch, Claimed, Claimer
from jobs.worker import tenants
from jobs.worker.aside import Aside
from jobs.worker.bell import Bell
from jobs.worker.connection import TROUBLE, Patience, drop, own_connection, sentence
from jobs.worker.executor import PUBLISHED, SHUTDOWN
from jobs.worker.heartbeat import Heartbeats
from jobs.worker.listener import Listener
from jobs.worker.liveness import Liveness
from jobs.worker.loops import Loops, loops
from jobs.worker.outage import AGAIN_S, Outage
from jobs.worker.output import Output
from jobs.worker.plan import Plan, Tally
from jobs.worker.recycling import Recycling
from jobs.worker.refusals import UNKNOWN, pairs, refusal, startable
from jobs.worker.reports import BATCH, Kept, Reports
from jobs.worker.slots import Live, Slots, facts
from jobs.worker.watch import Watch

log = logging.getLogger("jobs.worker")
REGISTERED_EVERY_S = 60.0
GATHER_S = 0.001
# From so many ends and so many free slots on, settling and claiming go at the same time.
WIDE = 16
# Slots are full: only an end, a signal or a duty is of interest.
MAX_WAIT_S = 5.0
ENOUGH = 5
# Somebody waits for the end of `--once` and `--until-empty`: how long they do without a database.
GIVE_UP_S = 20.0
# A claim that took so long has used up a part of its lease.
LATE_S = 1.0
# For handlers on the loop to honour a cancellation that they cannot refuse.
LAST_WORDS_S = 0.5
KILLED_S = 5.5
# At the end of a drain, and after a second signal: for a statement, for the last settlements, for the threads.
HURRY_S = 3.0
LAST_TRIES_S = 5.0


class Lost(Exception):
    """The database was away for longer than somebody waits who waits for this worker's end."""


class Worker:
    """One life of a worker process."""

    def __init__(self, plan: Plan, output: Output) -> None:
        self.plan, self.output = plan, output
        known = [d for d in registry() if plan.runs(d)]
        self._patience = Patience()
        with own_connection(self._patience):
            self.row = workers.register(plan.name, plan.slots, plan.groups, plan.queues, [d.name for d in known])
        self.by = f"worker:{self.row.id}"
        self.claimer = Claimer(
            pairs=pairs(plan, known), by=self.by, worker_id=str(self.row.id),
            workspaces=plan.workspaces, types=startable(known), weights=dict(conf().QUEUES), strict=plan.strict)
        self._users = replace(self.claimer, pairs=[pair for pair in self.claimer.pairs if pair[0] != SYSTEM])
        self.tally = Tally()
        self._bell = Bell()
        self._woken = threading.Event()
        self._stop_asked = 0
        self.slots = Slots(plan.slots, self.by, self._bell.ring)
        self.slots.children.say = output
        self.reports = Reports(self.slots, self.by, output, self.tally)
        self._poll = clock.Every(conf().POLL_S)
        registered = recovery.Registered([(d.type, d.version) for d in known], self.by)
        self._loops = Loops(loops(registered, plan.workspaces), output, self.row.id) if plan.loops else None
        self._duties = duties.Duties(looped=plan.loops, more=[(clock.Every(REGISTERED_EVERY_S), registered.tick)])
        self._heartbeats = Heartbeats(self.slots, self.row.id, self.by, self._void, output)
        self._watch = Watch(self.slots, output)
        self._listener = Listener(self._wake, output) if plan.listen else None
        self._aside: Aside[list[Answer]] = Aside(self._patience)
        self._recycling = Recycling.by(plan)
        self._recycled: str | None = None
        self._liveness = Liveness(plan.liveness_file) if plan.liveness_file else None
        # There may be more to claim than the last look took; the last look was answered.
        self._more = True
        self._looked = False
        self._outage = Outage()

    # -- asked from outside ------------------------------------------------------------------------------

    def ask_stop(self) -> None:
        """Drain and end; asked twice, hand back at once. Safe in a signal handler: it counts and rings."""
        self._stop_asked += 1
        if self._stop_asked > 1:
            self._patience.seconds = HURRY_S
        self._bell.ring()

    def _wake(self) -> None:
        self._woken.set()
        self._bell.ring()
        self._heartbeats.wake()

    def _void(self, live: Live) -> None:
        status = ResultStatus.LEASE_LOST if live.refused else ResultStatus.STALE_ATTEMPT
        self.output("worker.claim_lost", result_status=status, **facts(live.job))

    # -- the life of a worker ----------------------------------------------------------------------------

    def run(self) -> Tally:
        """Work until asked to stop (or, by the plan, until there is nothing left); then drain.

        Raises Lost where the plan has an end and the database is away for 20 s.
        """
        with own_connection(self._patience):
            try:
                self._start()
                self._work()
            finally:
                # However the work ended: what is in hand is handed back.
                try:
                    self._drain()
                finally:
                    self._close()
        return self.tally

    def _start(self) -> None:
        self._heartbeats.start()
        self._watch.start()
        self._aside.start()
        if self._listener:
            self._listener.start()
        if self._loops:
            self._loops.start()
        if any(d.executor == "isolated" and d.runs and d.worker_group in self.plan.groups for d in registry()):
            self.slots.children.start()
        self.output(f"{self.plan.role}.ready", name=self.plan.name, worker=str(self.row.id), slots=self.plan.slots,
                    groups=list(self.plan.groups), queues=list(self.plan.queues))

    def _work(self) -> None:
        while not self._stop_asked:
            if self._liveness is not None:
                self._liveness.touch()
            try:
                idle = self._round()
            except TROUBLE as error:
                self._trouble(error)
            except Exception as error:
                self._surprise(error)
            else:
                self._calm()
                if idle and self._is_done():
                    return
                self._look_at_limits()
                if idle:
                    self._bell.wait(self._pause_s())

    def _round(self) -> bool:
        """Settle, claim, begin; whether there is nothing to do before something happens."""
        if self._outage.in_doubt():
            self._resolve()
        self._gather()
        ended = self.reports.gather()
        reports = self.reports.next()
        if not reports:
            # No duty comes before a settlement.
            self._tick()
        slots = self._wanted(ended or bool(reports))
        if not reports and not slots:
            return not self.slots.ended
        asked = clock.monotonic()
        if min(len(reports), slots) >= WIDE:
            batch = self._at_once(reports, slots)
        else:
            answers, batch = settlement.settle_and_claim(
                [r for _, r in reports], self.by, self._claims if slots else None, slots)
            self.reports.settled(reports, answers)
            self._take(batch, slots)
        if batch.jobs and clock.monotonic() - asked > LATE_S:
            self._heartbeats.hurry([job.fence for job in batch.jobs])
        if reports:
            self._tick()
        return not (batch.jobs or batch.again or self.slots.ended or self.reports.ready)

    def _tick(self) -> None:
        self.reports.keep_lines()
        self._duties.tick()

    def _at_once(self, reports: Sequence[Kept], slots: int) -> Batch:
        """A wide round in two transactions at the same time: half the wait, and one commit still serves many jobs."""
        settling = self._aside.ask(lambda: settlement.settle([r for _, r in reports], self.by))
        try:
            batch = assignments.claim_now(self._claims, slots)
            self._take(batch, slots)
        finally:
            # Whatever became of the claim; and if this raises, the reports are kept.
            self.reports.settled(reports, settling.result())
        # What the settlement has made claimable, the claim beside it could not see.
        self._more = True
        return Batch(batch.jobs, again=True)

    def _take(self, batch: Batch, slots: int) -> None:
        if slots:
            self._more = batch.again or len(batch.jobs) == slots
            self._looked = bool(batch.jobs) or not batch.again
            self._begin(batch.jobs)

    @property
    def _claims(self) -> Claimer:
        """For everybody; for users alone while as many deliveries are under way as may be."""
        return self.claimer if self.slots.sends else self._users

    def _wanted(self, ended: bool) -> int:
        """For how many slots to claim now."""
        free = min(self.slots.free, BATCH)
        if self._recycling is not None:
            free = int(min(free, self._recycling.room(self.tally.claimed)))
        if free <= 0 or self.reports.alone or self._claims_no_more:
            return 0
        if not (ended or self._more or self._woken.is_set() or self._poll.due()):
            return 0
        self._woken.clear()
        return free

    @property
    def _claims_no_more(self) -> bool:
        return bool(self._recycled) or (self.plan.once and self._looked)

    def _is_done(self) -> bool:
        over = self.plan.until_empty or self._claims_no_more
        return over and not self.slots.live and not self.reports

    def _look_at_limits(self) -> None:
        """A worker that has worked enough claims no more, and ends once its jobs have ended by themselves."""
        if self._recycling is None or self._recycled:
            return
        self._recycled = self._recycling.reason(self.tally.claimed)
        if self._recycled:
            self.output("worker.recycling", reason=self._recycled, running=len(self.slots.live))
            self._bell.ring()

    def _gather(self) -> None:
        """Ends come in bursts: a millisecond more brings the rest of the burst into one transaction."""
        if self.slots.ended and len(self.slots.ended) < len(self.slots.live):
            clock.sleep(GATHER_S)

    def _pause_s(self) -> float:
        waits = self.slots.free <= 0 or self._claims_no_more or self.reports.alone
        pause = MAX_WAIT_S if waits else self._poll.wait_s()
        return min(pause, self.reports.wait_s(), self._duties.wait_s(), self._outage.wait_s())

    def _begin(self, jobs: Sequence[Claimed]) -> None:
        if jobs:
            failpoints.at("claim.committed")
        self.tally.claimed += len(jobs)
        tenants.learn({job.tenant_id for job in jobs})
        runnable: list[tuple[Claimed, Definition]] = []
        known = registry()
        for job in jobs:
            definition = known.find(job.type, job.version)
            refused = refusal(job, definition)
            if refused is not None:
                self.reports.add(job, refused, f"{job.type}@{job.version}" if refused is UNKNOWN else None)
            elif definition is not None:
                runnable.append((job, definition))
        if runnable:
            failpoints.at("worker.begin")
        self.slots.begin(runnable)

    # -- trouble -----------------------------------------------------------------------------------------

    def _trouble(self, error: Exception) -> None:
        """Everything unsettled is kept; wait, and then look whether a lost answer left attempts behind (E8)."""
        pause = self._outage.again()
        # A look that failed found nothing out, and has used up what asked for it.
        self._more = True
        drop()
        if (self.plan.once or self.plan.until_empty) and self._outage.lasts_s > GIVE_UP_S:
            raise Lost(sentence(error)) from error
        self._complain(error, again_in_s=round(pause, 2))
        until = clock.monotonic() + pause
        while not self._stop_asked and (left := until - clock.monotonic()) > 0:
            self._bell.wait(left)

    def _surprise(self, error: Exception) -> None:
        """Something that nobody foresaw, a hook that raises for one: go on, and settle one by one to find which."""
        told = self._outage.failures >= 2
        log.error("the worker met something unexpected and goes on", exc_info=None if told else error)
        if self.reports.alone:
            for job in self.reports.drop():
                self.output("worker.left_to_lease", level=0, error=sentence(error), **facts(job))
        self.reports.alone = bool(self.reports)
        if (self.plan.once or self.plan.until_empty) and self._outage.failures >= ENOUGH:
            # Somebody waits for the end of this.
            raise error
        self._trouble(error)

    def _complain(self, error: Exception, **facts: object) -> None:
        if self._outage.worth_a_line():
            self.output("worker.database_trouble", level=0, error=sentence(error), tried=self._outage.failures, **facts)

    def _calm(self) -> None:
        if self._outage.failures and self._outage.over():
            self.output("worker.database_back", level=0)

    def _resolve(self) -> None:
        known = [*self.slots.live, *self.reports.fences]
        lost = assignments.hand_back_unknown(str(self.row.id), known, self.by)
        self._outage.looked()
        if lost:
            self.output("worker.handed_back_unknown", attempts=lost)

    # -- the end -----------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Let handlers end within the grace, then hand the rest back as interrupted (E1: never a failure)."""
        if self.slots.live:
            self.output("worker.draining", running=len(self.slots.live), grace_s=conf().DRAIN_GRACE_S)
        for live in list(self.slots.live.values()):
            live.run.stop(SHUTDOWN)
        until = clock.monotonic() + conf().DRAIN_GRACE_S
        while (self.slots.live or self.reports) and clock.monotonic() < until and self._stop_asked < 2:
            self._bell.wait(min(0.05 if self._settle_quietly() else 0.3, max(0.0, until - clock.monotonic())))
        self._hand_back()
        self._patience.seconds = HURRY_S
        until = clock.monotonic() + LAST_TRIES_S
        for tried in range(settlement.TRIES):
            if (self._settle_quietly() and not self.reports) or clock.monotonic() > until:
                break
            clock.sleep(AGAIN_S * (tried + 1))

    def _hand_back(self) -> None:
        left = list(self.slots.live.values())
        for live in left:
            self.slots.stop(live, SHUTDOWN, PUBLISHED if live.run.settled else Interrupted())
        until = clock.monotonic() + LAST_WORDS_S
        while any(not x.ended and not x.threaded for x in left) and clock.monotonic() < until:
            self._bell.wait(0.01)
        for live in left:
            self.slots.abandon(live, PUBLISHED if live.run.settled else Interrupted())
        # Killed children are dead in a moment, and their attempts are given back with the others.
        while any(not x.ended for x in left) and clock.monotonic() < until + KILLED_S:
            self._bell.wait(0.01)

    def _settle_quietly(self) -> bool:
        """Settle all there is, and give back what a lost answer left us; whether that went well."""
        try:
            if self._outage.in_doubt():
                self._resolve()
            self.reports.gather()
            while reports := self.reports.next():
                self.reports.settled(reports, settlement.settle([r for _, r in reports], self.by))
            self.reports.keep_lines()
        except TROUBLE as error:
            self._outage.again()
            drop()
            self._complain(error)
            return False
        except Exception as error:
            log.exception("a settlement met something unexpected")
            self._outage.leave_it()
            for job in self.reports.drop():
                self.output("worker.left_to_lease", level=0, error=sentence(error), **facts(job))
            self.reports.alone = True
            return False
        self._calm()
        return True

    def _close(self) -> None:
        mine = (self._heartbeats, self._watch, self._listener, self._aside, self._loops)
        threads = [t for t in mine if t is not None and t.is_alive()]
        for thread in threads:
            thread.ask_end()
        until = clock.monotonic() + HURRY_S
        for thread in threads:
            thread.join(timeout=max(0.0, until - clock.monotonic()))
        self.slots.close()
        if self._liveness is not None:
            self._liveness.end()
        # In trouble its row is closed by whoever misses its heartbeats.
        if not self._outage.failures:
            with suppress(*TROUBLE):
                workers.stopped(self.row.id)
            traffic.flusher.end()
        if self._recycled:
            self.output("worker.recycled", reason=self._recycled, claimed=self.tally.claimed)
        self.output(f"{self.plan.role}.stopped", claimed=self.tally.claimed, completed=self.tally.completed,
                    failed=self.tally.failed, left=len(self.reports))
