"""The story of the demo: documents are described, a worker dies, a document is lost and found, and the books are right.

Every step waits for what the database says, never for a time; each names its figures from there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from django.db import connection

from jobs import clock
from jobs.models import Attempt, DeadLetter
from jobs.services import dead_letters, intake
from jobs.services.intake import Door
from jobs.states import State
from jobsite.definitions import documents
from jobsite.demo import DemoFailed, figures, proof
from jobsite.demo.fleet import Fleet, Process
from jobsite.demo.screen import Screen
from jobsite.documents import catalogue, sources

DOOR: Final = Door("demo", "scheduler", "command:demo")
PATIENCE_S: Final = 120.0
SLOTS: Final = 2
ROUNDS: Final = 5
LOST: Final = "lost.md"
NOTE: Final = """# Note that was lost

This note was moved away after its description had been asked for, and put back after the job had failed.
"""


class Demo:
    """One run over a folder. `tell` gives whether everything ended as it must."""

    def __init__(self, folder: Path, screen: Screen, limit: int) -> None:
        self.folder, self.screen, self.limit = folder, screen, limit
        self.ids: list[str] = []
        # No editor counts the revisions here: the moment of the run stands for one, so that each run has its jobs.
        self.revision = int(clock.wall().timestamp() * 1000)
        self.run = f"demo-{os.getpid()}"

    @contextmanager
    def workers(self) -> Iterator[Fleet]:
        """Two workers that are ready, and a private folder for their logs and for the document that gets lost."""
        self.private = Path(tempfile.mkdtemp(prefix="jobsite-demo-")).resolve()
        try:
            with Fleet(self.run, self.private, SLOTS) as fleet:
                fleet.ready(fleet.start(2))
                names = " and ".join(f"{p.name} (process {p.pid})" for p in fleet.processes)
                self.screen.say(f"\n1. Two workers are ready: {names}, {SLOTS} slots each.")
                yield fleet
        finally:
            shutil.rmtree(self.private, ignore_errors=True)

    def tell(self, fleet: Fleet) -> bool:
        """All steps in their order."""
        self._enqueue()
        with self.screen.bar(len(self.ids)):
            dead, held = self._kill(fleet)
            new = fleet.start()
            self.screen.say(f"   {new[0].name} (process {new[0].pid}) takes its place; the jobs of the dead one wait "
                            "for its lease to run out.")
            self._wait(fleet, lambda: self._ended() >= len(self.ids))
        fleet.ready(new)
        self._say_lapses(dead, held)
        self._answer(fleet)
        return self._sum_up()

    # -- the steps ---------------------------------------------------------------------------------------

    def _enqueue(self) -> None:
        """One job a document, and one about a document that is gone before a worker comes."""
        lost = self.private / LOST
        lost.write_text(NOTE)
        asked = documents.request(str(self.private), LOST, sources.read(self.private, LOST).hash, self.revision)
        lost.unlink()
        self.ids = self._folder()
        self.lost = intake.enqueue_many([asked], door=DOOR)[0].id
        self.screen.say(f"\n2. {_count(len(self.ids), 'Markdown file')}, a job for each; and one for a document that "
                        "is lost before it is read.")
        self.ids.append(self.lost)

    def _folder(self) -> list[str]:
        done = documents.enqueue_folder(self.folder, door=DOOR, limit=self.limit, revision=self.revision)
        if not done:
            raise DemoFailed(f"No Markdown file below {self.folder} can be read.")
        return [answer.id for answer in done]

    def _kill(self, fleet: Fleet) -> tuple[Process, list[str]]:
        """Kill a worker with jobs in its hands, once a third is done if there are many."""
        for _ in range(ROUNDS):
            self._wait(fleet, lambda: self._ended() >= (len(self.ids) // 3 if len(self.ids) >= 12 else 0))
            caught = fleet.catch(lambda: self._ended() >= len(self.ids))
            if caught is not None:
                self._say_killed(*caught)
                return caught
            # A handful of documents is done faster than we can look: the next revision of them makes new jobs.
            self.screen.say("   All were done before a worker could be caught at it; once more.")
            fleet.ready(fleet.start(2 - len(fleet.processes)))
            self.revision += 1
            self.ids += self._folder()
        raise DemoFailed("No worker could be killed in the middle of a job.")

    def _say_killed(self, process: Process, held: list[str]) -> None:
        what = ", ".join(figures.subjects(held))
        self.screen.say(f"\n3. kill -9: {process.name} (process {process.pid}) is dead, with "
                        f"{_count(len(held), 'job')} in its hands: {what}.")

    def _say_lapses(self, dead: Process, held: list[str]) -> None:
        ends = list(dead.attempts().filter(outcome="lapsed"))
        again = Attempt.objects.filter(job_id__in=held, outcome="completed").select_related("worker")
        by = ", ".join(sorted({attempt.worker.name for attempt in again if attempt.worker}))
        after = max(((a.ended_at or a.leased_at) - a.leased_at).total_seconds() for a in ends) if ends else 0.0
        self.screen.say(f"   {_count(len(ends), 'lease')} of the dead worker ran out after {after:.1f} s; the jobs "
                        f"were handed out again and completed by {by or 'nobody'}.")

    def _answer(self, fleet: Fleet) -> None:
        """The dead letter: shown, its cause removed, requeued."""
        letter = DeadLetter.objects.filter(job_id=self.lost, resolved_at=None).first()
        if letter is None:
            raise DemoFailed("The job of the lost document left no dead letter.")
        last = Attempt.objects.filter(job_id=self.lost).latest("number")
        self.screen.say(f"\n4. A dead letter: job {self.lost}, {letter.reason} after "
                        f"{_count(letter.attempt_count, 'attempt')}, {letter.reason_code}: {last.message}")
        (self.private / LOST).write_text(NOTE)
        dead_letters.requeue(letter, by="command:demo", reason="the document is back")
        self._wait(fleet, lambda: figures.ended([self.lost]) == 1)
        self.screen.say("   The document was put back and the letter requeued: "
                        f"{'completed' if self._completed() else 'failed again'}.")

    def _sum_up(self) -> bool:
        """The table, the descriptions, and whether every job is completed and told by its receipts."""
        summed = figures.of(self.ids)
        self.screen.table("The documents", ("document", "description"), [
            (d.document, d.description)
            for root in (self.folder, self.private) for d in catalogue.descriptions(root)])
        self.screen.table("What happened", ("figure", "value"), [
            ("jobs", f"{summed.jobs}, {summed.completed} completed"), ("attempts", summed.attempts),
            ("retries after a failure", summed.retries), ("leases that lapsed", summed.lapses),
            ("dead letters", f"{summed.letters}, {summed.requeued} requeued"),
            ("seconds", f"{summed.seconds:.1f}, the dead worker's lease included"),
            *([("jobs a second", f"{summed.each_s:.0f}, without those of the dead worker and of the lost document")]
              if summed.each_s >= 1 else [])])
        found = proof.faults(self.ids)
        for fault in found[:10]:
            self.screen.say(f"   {fault}")
        all_ = len(self.ids)
        self.screen.say(f"\nNOT RIGHT: {_count(len(found), 'job')} of {all_}." if found else
                        f"\nNothing was lost: {all_} of {all_} chains of receipts hold and say what the rows say.")
        return not found

    # -- waiting -----------------------------------------------------------------------------------------

    def _ended(self) -> int:
        count = figures.ended(self.ids)
        self.screen.done(count)
        return count

    def _completed(self) -> bool:
        return figures.states([self.lost])[State.COMPLETED.value] == 1

    def _wait(self, fleet: Fleet, condition: Callable[[], bool]) -> None:
        until = clock.monotonic() + PATIENCE_S
        while not condition():
            fleet.check()
            if clock.monotonic() > until:
                raise DemoFailed(f"Some jobs have not ended after {PATIENCE_S:g} s; see manage.py explain "
                                 f"{figures.waiting(self.ids)}.")
            clock.sleep(0.02)


def server() -> str:
    """Which database this is."""
    connection.ensure_connection()
    number = connection.pg_version  # type: ignore[attr-defined]
    return f"PostgreSQL {number // 10_000}.{number % 10_000}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
