"""Workers that are replaced one after the other under load, and killed in the middle of that (cases B06, B07)."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from jobs.models import Attempt, Job
from jobs.services import intake
from tests.database import own_connection
from tests.worker.cluster import LONG
from tests.worker.processes import until

ROUNDS = 20 if LONG else 3
A_SECOND = 20


class Load(threading.Thread):
    """About 20 jobs a second: most are short, some longer than the grace of a drain."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self._path, self._ends = path, threading.Event()
        self.made: list[str] = []

    def run(self) -> None:
        with own_connection():
            while not self._ends.wait(1 / A_SECOND):
                long, n = len(self.made) % 10 == 0, len(self.made)
                self.made.append(intake.enqueue(("sleepy", "sleepy-thread")[n % 2], {
                    "seconds": 1.5 if long else 0.02, "path": self._path}).id)

    def stop(self) -> list[str]:
        self._ends.set()
        self.join(10)
        return self.made


def everything_ran(made: list[str], path: Path, seconds: float = 90) -> None:
    """Nothing lost, nothing invented: every job has ended well, and was seen to."""
    until(lambda: not Job.objects.exclude(state="completed").exists(), seconds)
    assert {str(x) for x in Job.objects.values_list("id", flat=True)} == {str(x) for x in made}
    ended = {line.split()[1] for line in path.read_text().splitlines() if line.startswith("end")}
    assert ended == set(map(str, made))


def test_a_rolling_restart_under_load_loses_nothing_and_fails_nothing(workers, jobs, tmp_path):
    """case-B06: the grace is shorter than the longest jobs; what is handed back is nobody's failure."""
    path = tmp_path / "trace"
    env = {"JOBS_DRAIN_GRACE_S": "0.5"}
    fleet = [workers(slots=4, env=env) for _ in range(3)]
    load = Load(str(path))
    load.start()
    took = []
    for _ in range(ROUNDS):
        for place, old in enumerate(fleet):
            fleet[place] = workers(slots=4, env=env)
            begun = time.monotonic()
            assert old.stop() == 0
            took.append(time.monotonic() - begun)
            assert old.events("stopped", left=0)
    made = load.stop()
    everything_ran(made, path)
    assert not Job.objects.exclude(failures=0, lapses=0).exists()
    outcomes = list(Attempt.objects.values_list("outcome", flat=True))
    assert set(outcomes) <= {"completed", "interrupted"}
    took.sort()
    print(f"{len(took)} drains under load, {len(made)} jobs, {outcomes.count('interrupted')} handed back; SIGTERM to"
          f" exit {took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest), the grace being 0.5 s")


def test_a_worker_that_is_killed_while_it_drains_leaves_everything_to_recovery(workers, jobs, tmp_path):
    """case-B07: SIGTERM, then SIGKILL at some moment of the drain; each job is recovered and ends well."""
    path = tmp_path / "trace"
    chance = random.Random(17)
    rest = workers(slots=8)
    load = Load(str(path))
    load.start()
    for _ in range(50 if LONG else 4):
        victim = workers(slots=4, env={"JOBS_DRAIN_GRACE_S": "1"})
        until(lambda victim=victim: Attempt.objects.filter(worker_id=victim.worker_id).exists())
        begun, wait = time.monotonic(), chance.choice([0, 0.01, 0.05, 0.2, 0.6, 0.95, 1.05, 1.3])
        victim.signal(15)
        until(lambda begun=begun, wait=wait: time.monotonic() >= begun + wait)
        victim.kill()
    everything_ran(load.stop(), path)
    assert not Attempt.objects.filter(ended_at=None).exists()
    # Killed with jobs in hand: those are lapses, and nothing else is.
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"completed", "interrupted", "lapsed"}
    assert rest.stop() == 0
