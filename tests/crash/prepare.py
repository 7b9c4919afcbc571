"""What must be there before a fault: a job that waits, is in dead hands, has failed for good, or is due soon."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import Group

from jobs import clock
from jobs.models import Delivery, Limits, Timer
from jobs.outcomes import Failed
from jobs.services import assignments, cancellation, commands, intake, keys, settlement, tenancy, timers
from jobs.services.assignments import Claimer
from jobs.services.settlement import Report


def job(actor: str, type_: str, input_: dict[str, Any], group: str, sink: str) -> str:
    """A job for this actor; its id. A callback's sender tells `sink`."""
    made = intake.enqueue(type_, input_, **_options(actor, type_, sink)).id
    if actor == "sender":
        cancellation.cancel(made, by="user:crash")
        return str(Delivery.objects.get(job_id=made).sender_id)
    if actor in ("redact", "erase"):
        cancellation.cancel(made, by="user:crash")
    if actor == "erase":
        cancellation.cancel(intake.enqueue(type_, input_, tenant=f"gone-{made}").id, by="user:crash")
    if type_.startswith("obeying"):
        commands.steer(made, {"to": "left"}, by="user:crash")
    if actor in ("recover", "requeue", "bulk"):
        by = f"worker:{uuid.uuid4()}"
        claimed = assignments.take(Claimer(pairs=[(group, "collect")], by=by), 1).jobs[0]
        if actor in ("requeue", "bulk"):
            settlement.settle([Report(made, claimed.fence, Failed("planted", retryable=False))], by)
    return made


def timer(type_: str, input_: dict[str, Any]) -> None:
    """A timer whose one moment within a year has just come."""
    anchor = clock.now().replace(microsecond=0)
    draft = timers.Draft(type_, input_, every_s=366 * 86_400, anchor_at=anchor, catch_up="last")
    timers.put(tenancy.tenant(tenancy.workspace(), None), type_, draft, by="user:crash")
    Timer.objects.filter(name=type_).update(next_at=anchor)


def _options(actor: str, type_: str, sink: str) -> dict[str, Any]:
    if actor == "promote":
        return {"delay_s": 0.5}
    if actor == "sender":
        return {"callback_url": sink, "callback_events": ["cancelled"]}
    if type_.startswith("spending"):
        place = tenancy.workspace()
        tenant = tenancy.tenant(place, f"of-{type_}", make=True)
        Limits.objects.create(workspace=place, tenant=tenant, retry_budget=1)
        return {"tenant": tenant.subject}
    return {}


def empty_domain() -> None:
    """No rows of what atomic handlers write."""
    Group.objects.all().delete()


def api_key() -> str:
    """A key that may enqueue, read and claim."""
    return keys.make(tenancy.workspace(), "crash", ["enqueue", "read", "claim"])[1]
