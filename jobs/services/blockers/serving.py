"""Whether anybody alive would take a job: its type, a worker that serves it and knows the type, or a runner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from jobs import clock
from jobs.conf import registry
from jobs.models import Job, Key, Worker
from jobs.routing import UNROUTED
from jobs.services.blockers.asking import Asked, Blocker
from jobs.services.keys import Permission
from jobs.services.telling import span
from jobs.services.workers import LIVE_FOR

# A key's use is noted coarsely, within a minute.
RUNNER_LIVE_FOR = timedelta(seconds=120)
LAST_SEEN, KEYS = 5, 1_000


def switched_off(asked: Asked) -> Iterator[Blocker]:
    """Whether its type is not to be run on this site."""
    job = asked.job
    definition = registry().find(job.type, job.version)
    if definition is not None and not definition.runs:
        yield Blocker("definition_stopped", f"{job.type}@{job.version} is switched off on this site.",
                      {"type": job.type, "version": job.version})


def unrouted(asked: Asked) -> Iterator[Blocker]:
    """Whether it was asked of an agent that this site does not know (A23)."""
    job = asked.job
    if job.worker_group == UNROUTED:
        yield Blocker("unknown_agent", f"This site knows no agent {job.agent!r}: whoever takes it ends it as failed.",
                      {"agent": job.agent})


def nobody(asked: Asked) -> Iterator[Blocker]:
    """Whether nobody alive serves its group and queue and can run its version; whoever did was last seen then."""
    job = asked.job
    name, where = f"{job.type}@{job.version}", f"group {job.worker_group!r}, queue {job.queue!r}"
    place: dict[str, Any] = {"worker_group": job.worker_group, "queue": job.queue}
    if job.worker_group in registry().groups(external=True):
        yield from _no_runner(asked, where, place)
        return
    serving = Worker.objects.filter(queues__contains=[job.queue], worker_groups__contains=[job.worker_group])
    live = serving.filter(stopped_at=None, seen_at__gt=asked.now - LIVE_FOR)
    if not live.exists():
        seen, words = _last_seen(asked, serving)
        yield Blocker("no_live_worker", f"No live worker serves {where}.{words}", {**place, **seen})
        return
    # A job of an unknown agent is failed by whoever takes it, so that any worker will do.
    if job.worker_group == UNROUTED or live.filter(types__contains=[name]).exists():
        return
    seen, words = _last_seen(asked, serving.filter(types__contains=[name]))
    yield Blocker("no_worker_knows_type", f"Live workers serve {where}, but none of them can run {name}.{words}",
                  {**place, "type": job.type, "version": job.version, **seen})


def _last_seen(asked: Asked, workers: QuerySet[Worker]) -> tuple[dict[str, Any], str]:
    """Those who would have served it, the latest first, for operators: rows of workers are kept for a week."""
    if not asked.everything:
        return {}, ""
    found = list(workers.order_by("-seen_at").values_list("name", "seen_at", "stopped_at")[:LAST_SEEN])
    told = [{"name": name, "seen_at": clock.jsonable(at), "stopped": stopped is not None}
            for name, at, stopped in found]
    words = f" The last that did, {found[0][0]}, was seen {_ago(asked.now, found[0][1])}." if found else ""
    return {"last_seen": told}, words


def _ago(now: datetime, at: datetime) -> str:
    return f"{span(max(0.0, (now - at).total_seconds()))} ago"


def _no_runner(asked: Asked, where: str, place: dict[str, Any]) -> Iterator[Blocker]:
    job = asked.job
    keys = Key.objects.filter(workspace_id=job.workspace_id, revoked_at=None,
                              permissions__contains=[Permission.CLAIM.value]).exclude(last_used_at=None)
    able = [key for key in keys.order_by("-last_used_at")[:KEYS] if _may_claim(key, job)]
    last = able[0].last_used_at if able else None
    if last is not None and last > asked.now - RUNNER_LIVE_FOR:
        return
    # A key may be another tenant's.
    last = last if asked.everything else None
    words = f" The last was used {_ago(asked.now, last)}." if last is not None else ""
    yield Blocker("no_live_runner", f"No runner's key has been used for {where} in the last"
                  f" {span(RUNNER_LIVE_FOR.seconds)}.{words}", {**place, "last_used_at": clock.jsonable(last)})


def _may_claim(key: Key, job: Job) -> bool:
    served = key.worker_groups is None or job.worker_group in key.worker_groups
    return served and key.tenant_id in (None, job.tenant_id)
