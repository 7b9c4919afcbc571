"""What a job shares with others: its exclusive group, and what its tenant may run at once (C9, C11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.models import Job
from jobs.routing import SYSTEM
from jobs.selectors import limit
from jobs.services import throttles
from jobs.services.blockers.asking import NAMED, Asked, Blocker, Holding, before_it, holding
from jobs.states import HELD, Gate, State
from jobs.store import admission

_COUNTED = (State.QUEUED.value, *(s.value for s in HELD))


def group_full(asked: Asked) -> Iterator[Blocker]:
    """Whether its exclusive group lets no more in, and who is in it."""
    job = asked.job
    if job.exclusive_group is None or job.state != State.QUEUED:
        return
    most = limit("exclusive_group_max", job.workspace_id, job.tenant_id)
    scope = limit("exclusive_group_scope", job.workspace_id, job.tenant_id) or "tenant"
    name = f"Its exclusive group {job.exclusive_group!r}"
    inside = _in_group(job, scope) if job.gate == Gate.EXCLUSIVE else holding(
        admission.group_key(scope, job.workspace_id, job.tenant_id, job.exclusive_group))
    if most is None or inside.used < most:
        if job.gate == Gate.EXCLUSIVE:
            yield Blocker("group_has_room", f"{name} has room again; it is about to be let in.",
                          {"exclusive_group": job.exclusive_group}, "repair")
        return
    ids = inside.ids(asked)
    facts: dict[str, Any] = {"exclusive_group": job.exclusive_group, "scope": scope, "most": most, "holders": ids}
    hidden = "" if len(ids) == len(inside.jobs) else "others"
    who = " and ".join(filter(None, (before_it(ids), hidden)))
    yield Blocker("exclusive_group_full", f"{name} lets {most} in at once; before it: {who}.",
                  facts if hidden else {**facts, "used": inside.used})


def _in_group(job: Job, scope: str) -> Holding:
    """Who counts under its group for whoever waits at the gate: also those that could be claimed."""
    others = Job.objects.filter(exclusive_group=job.exclusive_group, workspace_id=job.workspace_id, gate=None,
                                state__in=_COUNTED)
    if scope != "workspace":
        others = others.filter(tenant_id=job.tenant_id)
    # In the order of the index; of a group that was unlimited until now there may be very many.
    found = list(others.order_by("tenant_id").values_list("pk", "tenant_id")[:admission.RELEASE_AT_MOST])
    return Holding(len(found), [(str(pk), tenant) for pk, tenant in found[:NAMED]])


def tenant(asked: Asked) -> Iterator[Blocker]:
    """Whether its tenant is put aside, or runs as many jobs as it may, and which."""
    job = asked.job
    if job.worker_group == SYSTEM:
        return
    parked = next((word for word in asked.lines if word is not None), None)
    if parked == "deleting" or job.tenant.deleting_at is not None:
        yield Blocker("tenant_deleting", "Its tenant is being deleted; it is about to be cancelled.", {}, "erasures")
        return
    most = limit("tenant_concurrency", job.workspace_id, job.tenant_id)
    running = holding(admission.tenant_key(job.tenant_id)) if most is not None else Holding(0, [])
    if most is not None and running.used >= most:
        ids = running.ids(asked)
        yield Blocker("tenant_at_cap", f"Its tenant runs {running.used} of at most {most} jobs at once; in its"
                      f" slots: {before_it(ids)}.", {"most": most, "used": running.used, "holders": ids})
    elif parked == "paused" and not any(one.kind == "tenant" for one in throttles.blockers_of(job)):
        yield Blocker("line_parked", "Its tenant is paused no more; it is about to have its turns back.", {}, "repair")
    elif parked == "cap":
        yield Blocker("line_parked", "Its tenant has room again; it is about to have its turns back.",
                      {"used": running.used, "most": most}, "repair")
