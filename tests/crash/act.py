"""The armed processes of the grid that are no workers: `python -m tests.crash.act ROLE ...` does one thing once.

Whatever becomes of it is said on stdout, as a client would have seen it: an answer, or nothing.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def enqueue(type_: str, key: str, path: str) -> None:
    """Enqueue once under a key."""
    from jobs.services import intake

    done = intake.enqueue(type_, {"path": path}, idempotency_key=key)
    # The wake goes out from a thread of its own.
    _settled("wake.sending")
    _say(id=done.id)


def cancel(job_id: str) -> None:
    """Cancel one job."""
    from jobs.services import cancellation

    _say(state=cancellation.cancel(job_id, by="user:crash").state)


def steer(job_id: str) -> None:
    """Send it a steer under a key; however often, there is one."""
    from jobs.models import Command
    from jobs.services import commands

    sent = commands.steer(job_id, {"to": "left"}, by="user:crash", idempotency_key=job_id)
    assert Command.objects.filter(job_id=job_id).count() == 1
    _say(command=sent.command)


def requeue(job_id: str) -> None:
    """Requeue its dead letter."""
    from jobs.models import DeadLetter
    from jobs.services import dead_letters

    letter = DeadLetter.objects.get(job_id=job_id)
    _say(state=dead_letters.requeue(letter, by="user:crash").state)


def bulk(job_id: str) -> None:
    """Requeue it by a bulk answer, the same one as before, and carry that on to its end."""
    from jobs.models import DeadLetter
    from jobs.services import operations, triage

    letter = DeadLetter.objects.filter(job_id=job_id).earliest("id")
    asked = operations.begin("requeue", operations.Match(letters=(letter.pk,)), by="user:crash", reason="crash",
                         token=uuid.uuid5(uuid.NAMESPACE_OID, job_id))
    duty = triage.Triage()
    while not asked.ended:
        duty.carry_on(asked.pk)
        asked.refresh_from_db()
    done = DeadLetter.objects.filter(bulk_id=asked.pk).count()
    assert (asked.done, asked.skipped, asked.end) == (done, {}, "finished"), (asked.done, asked.skipped, asked.end)
    assert done == 1
    _say(done=done)


def redact(job_id: str) -> None:
    """Redact it, or say that it was."""
    from jobs.models import Job, Receipt
    from jobs.services import erasure

    done = erasure.redact_job(job_id, by="user:crash", reason="crash")
    assert Job.objects.get(pk=job_id).input == ""
    assert Receipt.objects.filter(job_id=job_id, kind="job.redacted").count() == 1
    _say(number=done.number)


def erase(job_id: str) -> None:
    """Delete the tenant beside it with its one job, and carry that on to its end, whoever began it."""
    from jobs import clock
    from jobs.errors import NotFound
    from jobs.models import Erasure, Tenant
    from jobs.services import erasure

    tenant = Tenant.objects.filter(subject=f"gone-{job_id}").first()
    try:
        if tenant is not None:
            erasure.delete(tenant, by="user:crash", reason=job_id)
    except NotFound:
        # A healthy worker has carried it on meanwhile.
        tenant = None
    begun, duty = Erasure.objects.get(reason=job_id), erasure.Erasures()
    while not begun.ended:
        if not duty.carry_on(begun.pk):
            clock.sleep(0.05)
        begun.refresh_from_db()
    assert (begun.end, begun.counts["jobs_job"], begun.counts["jobs_tenant"]) == ("finished", 1, 1), begun.counts
    _say(done=1)


def recover(job_id: str) -> None:
    """Recover this job's lapsed attempt, as the loop does with all of them."""
    from jobs.services import recovery
    from jobs.store import due

    def once() -> None:
        found = due.look(0, due.FIRST, 1_000).lapsed
        recovery.each([x for x in found if x[0] == job_id], lambda some: due.lapse(some, 0, recovery.BY))

    _until_fired(once)


def promote(job_id: str) -> None:
    """Let due jobs into the claim until the armed place was met."""
    from jobs.services import recovery

    _until_fired(lambda: recovery.promote())


def fire(type_: str) -> None:
    """Fire the timer of this type, whose one moment has come; or find that somebody has."""
    from jobs.models import Firing, Timer
    from jobs.services import firing

    timer = Timer.objects.get(type=type_)
    firing.fire(1, [timer.pk])
    made = Firing.objects.get(timer=timer)
    assert made.outcome == "enqueued", (made.code, made.detail)
    _say(id=str(made.job_id))


def serve(port: str) -> None:
    """Serve the site."""
    from daphne.cli import CommandLineInterface

    CommandLineInterface().run(["-b", "127.0.0.1", "-p", port, "--no-server-name", "jobsite.asgi:application"])


def _until_fired(work: Callable[[], Any]) -> None:
    from django.conf import settings

    from jobs import clock, failpoints

    armed = settings.JOBS["FAILPOINTS"].partition("=")[0]
    until = clock.monotonic() + 30
    while armed in failpoints._armed and clock.monotonic() < until:
        work()
        clock.sleep(0.05)


def _settled(name: str) -> None:
    from jobs import clock, failpoints

    until = clock.monotonic() + 5
    while name in failpoints._armed and clock.monotonic() < until:
        clock.sleep(0.01)


ROLES: dict[str, Callable[..., None]] = {
    "enqueue": enqueue, "cancel": cancel, "steer": steer, "requeue": requeue, "bulk": bulk, "redact": redact,
    "erase": erase, "recover": recover, "promote": promote, "fire": fire, "serve": serve}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    import django

    django.setup()
    ROLES[sys.argv[1]](*sys.argv[2:])
