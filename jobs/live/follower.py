"""What one connection has yet to be told: bounded, the latest of each job only, at most ten times a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from jobs import clock
from jobs.errors import JobNotFound, JobsError
from jobs.live.access import Grant
from jobs.selectors import Position, Seen

Frame = dict[str, Any]
# Without coalescing a burst drowns whoever is many; above so many jobs a reader reads everything anew anyway.
COALESCE_S = 0.1
MOST_JOBS = 100
MOST_ANSWERS = 100
REREAD_S = 20.0
SITE = 0


class Follower:
    """One connection's mailbox. `jobs` are the jobs it watches, each with the number it knows of (E12).

    `stream` is whose invalidations it gets besides: a tenant's id, SITE for everybody's, None for nobody's. A stream
    `of` one job ends with it. Whoever knows no numbers of what it shows `rereads` it now and then, as streams do.
    """

    rereads = False

    def __init__(self, ping_s: float) -> None:
        self.grant: Grant | None = None
        self.stream: int | None = None
        self.of: str | None = None
        self.jobs: dict[str, int] = {}
        self.ready = False
        self.over: JobsError | None = None
        self._ping_s = ping_s
        self._rereads = clock.Every(REREAD_S, REREAD_S)
        self._answers: deque[Frame] = deque()
        self._states: dict[str, Frame] = {}
        self._places: dict[str, Position] = {}
        self._moved: dict[str, Frame] = {}
        self._invalid: dict[str, int] = {}
        self._resync = False
        self._some = asyncio.Event()

    # --- what it is told -----------------------------------------------------------------------------------------

    def answer(self, frame: Frame) -> None:
        """Say this as it stands. One that asks faster than it reads is asked to read everything anew."""
        if len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
            self._resync = True
        self._answers.append(frame)
        self._some.set()

    def watch(self, seen: Seen, known: int) -> None:
        """From now on tell of this job what comes behind the number that it knows."""
        self.jobs[seen.id] = known
        self.moved(seen)

    def unwatch(self, job_id: str) -> None:
        """Tell no more of this job."""
        for kept in (self.jobs, self._states, self._places, self._moved):
            kept.pop(job_id, None)  # type: ignore[attr-defined]

    def moved(self, seen: Seen) -> None:
        """A watched job stands here now; nothing is said twice."""
        if seen.number > self.jobs.get(seen.id, seen.number):
            self.jobs[seen.id] = seen.number
            self._moved[seen.id] = standing("job", seen)
            self._some.set()

    def gone(self, job_id: str) -> None:
        """A watched job was erased."""
        self.unwatch(job_id)
        if job_id == self.of:
            self.end(JobNotFound())
        else:
            self.answer({**refusal(JobNotFound()), "job": job_id})

    def placed(self, job_id: str, stands: Position) -> None:
        """Where a watched job stands in its queue and in the pool, told when it is another (C8)."""
        if self._places.get(job_id) != stands:
            self._places[job_id] = stands
            self._states[job_id] = {
                "type": "status", "job": job_id, "position": None if stands.own_capped else stands.own,
                "jobs_ahead": stands.ahead, "jobs_ahead_capped": stands.ahead_capped}
            self._some.set()

    def invalidate(self, job_id: str, number: int) -> None:
        """A job of its stream has news; which, it reads."""
        if not self._resync:
            self._invalid[job_id] = max(number, self._invalid.get(job_id, 0))
            if len(self._invalid) > MOST_JOBS:
                self.resync()
        self._some.set()

    def resync(self) -> None:
        """Something may have been missed: it has to read what it shows."""
        self._invalid.clear()
        self._resync = True
        self._some.set()

    def end(self, error: JobsError) -> None:
        """Say why, and no more."""
        self.over = self.over or error
        self._some.set()

    # --- what it says --------------------------------------------------------------------------------------------

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """What is to be sent, for ever, or until its end was said; a ping where there is nothing else."""
        while True:
            try:
                await asyncio.wait_for(self._some.wait(), self._ping_s)
            except TimeoutError:
                yield {"type": "ping"}
                # A stream's notification may be lost where a process dies: reading now and then costs less than a lie.
                if self.ready and (self.rereads or self.stream is not None) and self._rereads.due():
                    yield {"type": "resync"}
                continue
            for frame in self._taken():
                yield frame
            if self.over is not None:
                yield refusal(self.over)
                return
            await clock.pause(COALESCE_S)

    def _taken(self) -> list[Frame]:
        self._some.clear()
        frames = [*self._answers, *([{"type": "resync"}] if self._resync else ()),
                  *self._moved.values(), *self._states.values()]
        if self._invalid:
            frames.append({"type": "jobs", "jobs": [{"job": id_, "number": n} for id_, n in self._invalid.items()]})
        self._resync = False
        for kept in (self._answers, self._moved, self._states, self._invalid):
            kept.clear()  # type: ignore[attr-defined]
        return frames


def standing(type_: str, seen: Seen) -> Frame:
    """Where a job stands, as a frame."""
    return {"type": type_, "job": seen.id, "number": seen.number, "state": seen.state, "revision": seen.revision}


def refusal(error: JobsError) -> Frame:
    """A refusal, as a frame."""
    return {"type": "error", "code": error.reason_code, "message": error.message}
