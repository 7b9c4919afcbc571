"""Drives jobs by verbs, as the services do, and compares fold(receipts) with the row after every one (E14.19)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from jobs import clock, receipts
from jobs.codecs import digest
from jobs.errors import JobsError
from jobs.models import Artifact, Attempt, DeadLetter, Job, Receipt
from jobs.outcomes import Completed, Failed, Interrupted, Outcome, Released, Stopped
from jobs.services import assignments, cancellation, commands, dead_letters, intake, recovery, settlement, verifying
from jobs.states import Verb
from jobs.store import moves
from jobs.store.claim import Claimed, Claimer
from jobs.store.moves import Answer, Moved
from jobs.store.sql import durable
from jobs.store.verbs import Move
from tests import database

QUEUES = ("collect", "chat", "steer", "follow_up")


def done(value: Any = None) -> Completed:
    """A completed outcome with this artifact."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return Completed(text, digest(text))


def claimer(*groups: str, queues: tuple[str, ...] = QUEUES, **more: Any) -> Claimer:
    """A claimer that serves these worker groups (default: `default`), from the first tenant on."""
    worker = str(uuid.uuid4())
    pairs = [(g, q) for g in groups or ("default",) for q in queues]
    more.setdefault("cursors", dict.fromkeys(pairs, 0))
    return Claimer(pairs=pairs, by=f"worker:{worker}", worker_id=worker, **more)


def story(job_id: object) -> list[receipts.Receipt]:
    """The receipts of a job in order."""
    return _facts(Receipt.objects.filter(job_id=job_id).order_by("number"))


def _facts(written: Iterable[Receipt]) -> list[receipts.Receipt]:
    return [receipts.Receipt(r.job_id, r.number, r.kind, clock.micros(r.at), r.body, bytes(r.hash)) for r in written]


def check(job_id: object) -> receipts.View:
    """The chain holds, and folding it gives the row."""
    job = Job.objects.get(pk=job_id)
    written = list(Receipt.objects.filter(job_id=job_id).order_by("number"))
    assert verifying.fault(job, written) is None
    view = receipts.fold(_facts(written))
    assert view is not None
    # Said once more and by hand, so that what compares is compared with something.
    assert (view.state, view.number, view.revision) == (job.state, job.number, job.revision)
    assert view.input_hash == bytes(job.input_hash).hex()
    assert view.progress == (json.loads(job.progress) if job.progress else None)
    artifact = Artifact.objects.filter(job_id=job_id).first()
    assert view.artifact_hash == (bytes(artifact.hash).hex() if artifact else None)
    live = Attempt.objects.filter(job_id=job_id, ended_at=None)
    assert [a.id for a in live] == ([job.attempt_id] if job.attempt_id else [])
    open_letters = DeadLetter.objects.filter(job_id=job_id, resolved_at=None).count()
    assert open_letters == 0 or job.state == "failed"
    return view


class Driver:
    """Verbs on jobs; every one checks the jobs it touched."""

    def __init__(self) -> None:
        self.claimer = claimer()

    def enqueue(self, type_: str = "echo", input_: Any = None, **options: Any) -> str:
        """Enqueue one job; its id."""
        answer = intake.enqueue(type_, {} if input_ is None else input_, **options)
        check(answer.id)
        return answer.id

    def claim(self, slots: int = 1, by: Claimer | None = None) -> list[Claimed]:
        """Claim; no upkeep, so that a test decides what is promoted and recovered."""
        from jobs.store.claim import claim

        batch = durable(lambda: claim(by or self.claimer, slots))
        for job in batch.jobs:
            check(job.id)
        return batch.jobs

    def claim_one(self, **more: Any) -> Claimed:
        """Claim the one job that there must be."""
        jobs = self.claim(1, **more)
        assert len(jobs) == 1, "nothing to claim"
        return jobs[0]

    def settle(self, job: Claimed, outcome: Outcome) -> Answer:
        """Settle an attempt with an outcome."""
        answer = settlement.settle([settlement.Report(job.id, job.fence, outcome)], self.claimer.by)[0]
        check(job.id)
        return answer

    def complete(self, job: Claimed, value: Any = None) -> Answer:
        return self.settle(job, done(value))

    def fail(self, job: Claimed, code: str = "attempt_error", message: str = "it broke",
             retryable: bool = True) -> Answer:
        return self.settle(job, Failed(code, message, retryable))

    def release(self, job: Claimed, after_s: float = 0) -> Answer:
        return self.settle(job, Released(int(after_s * 1_000_000)))

    def interrupt(self, job: Claimed) -> Answer:
        return self.settle(job, Interrupted())

    def stop(self, job: Claimed) -> Answer:
        return self.settle(job, Stopped())

    def start(self, job: Claimed) -> Answer:
        answer = assignments.start([(job.id, job.fence)], self.claimer.by)[0]
        check(job.id)
        return answer

    def extend(self, job: Claimed) -> dict[str, assignments.Beat]:
        beats = assignments.extend([job.fence])
        check(job.id)
        return beats

    def cancel(self, job_id: str, **more: Any) -> Moved:
        try:
            return cancellation.cancel(job_id, by="user:test", **more)
        finally:
            check(job_id)

    def pause(self, job_id: str, **more: Any) -> Moved:
        try:
            return cancellation.pause(job_id, by="user:test", **more)
        finally:
            check(job_id)

    def resume(self, job_id: str, **more: Any) -> Moved:
        try:
            return cancellation.resume(job_id, by="user:test", **more)
        finally:
            check(job_id)

    def send(self, job_id: str, kind: str, payload: Any = None, **more: Any) -> commands.Sent:
        try:
            return commands.send(job_id, kind, payload, by="user:test", **more)
        finally:
            check(job_id)

    def consume(self, job: Claimed, *ids: str) -> int:
        try:
            return commands.consume(job.id, job.fence, ids, self.claimer.by)
        finally:
            check(job.id)

    def requeue(self, job_id: str) -> Moved:
        letter = DeadLetter.objects.filter(job_id=job_id).latest("id")
        try:
            return dead_letters.requeue(letter, by="user:test")
        finally:
            check(job_id)

    def discard(self, job_id: str) -> Moved:
        letter = DeadLetter.objects.filter(job_id=job_id).latest("id")
        try:
            return dead_letters.discard(letter, by="user:test")
        finally:
            check(job_id)

    def move(self, job_id: str, verb: Verb, **more: Any) -> Answer:
        """One raw move through the door."""
        answer = durable(lambda: moves.apply([Move(job_id, verb, by="test", **more)]))[0]
        check(job_id)
        return answer

    def pass_time(self, seconds: float) -> None:
        """Move the database's clock on and let due jobs in."""
        database.pass_time(seconds)
        while recovery.promote():
            pass

    def recover(self) -> int:
        """One full recovery pass; how many attempts were ended."""
        ended = quiet_recovery().run()
        for job_id, in Job.objects.values_list("id"):
            check(job_id)
        return ended

    def job(self, job_id: str) -> Job:
        return Job.objects.get(pk=job_id)

    def state(self, job_id: str) -> str:
        return self.job(job_id).state


def quiet_recovery() -> recovery.Recovery:
    """A recovery that does not stand still because the test's database server is young."""
    here = recovery.Recovery()
    here._stand_still = lambda: False  # type: ignore[method-assign]
    return here


def refused(answer: Answer, code: str) -> JobsError:
    """The refusal that this answer must be."""
    assert isinstance(answer, JobsError), answer
    assert answer.reason_code == code, (answer.reason_code, code)
    return answer
