"""Worker rows: who is there, what it can run, when it was last seen (E7)."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Exists, OuterRef

from jobs.clock import Now
from jobs.models import Attempt, Worker
from jobs.store.sql import durable

LIVE_FOR = timedelta(seconds=60)
KEPT_FOR = timedelta(days=7)


def register(name: str, slots: int, worker_groups: Sequence[str], queues: Sequence[str],
             types: Sequence[str]) -> Worker:
    """A row for this life of the process; a restarted worker is another one (case-A15)."""
    worker = Worker(id=uuid.uuid4(), name=name[:200], host=socket.gethostname()[:255], pid=os.getpid(), slots=slots,
                    worker_groups=list(worker_groups), queues=list(queues), types=list(types))
    worker.save(force_insert=True)
    return worker


def seen(worker_id: uuid.UUID, running: int) -> None:
    """Its heartbeat; one that was frozen for long, and missed, is back with it."""
    Worker.objects.filter(pk=worker_id).update(seen_at=Now(), running=running, stopped_at=None)


def stopped(worker_id: uuid.UUID) -> None:
    """It ended in order."""
    Worker.objects.filter(pk=worker_id, stopped_at=None).update(stopped_at=Now(), running=0)


def known_types() -> set[str]:
    """Every `type@version` that some live worker can run."""
    live = Worker.objects.filter(stopped_at=None, seen_at__gt=Now() - LIVE_FOR)
    return {name for types in live.values_list("types", flat=True) for name in types}


def tidy(limit: int) -> bool:
    """Close rows that nobody has beaten for a minute, drop those that were closed a week ago; true for more to do."""
    closed = durable(lambda: _close_silent(limit))
    return _drop_old(limit) >= limit or closed >= limit


def _close_silent(limit: int) -> int:
    silent = Worker.objects.filter(stopped_at=None, seen_at__lt=Now() - LIVE_FOR).order_by("seen_at").values("pk")
    # One that is beating at this moment is none of ours.
    dead = silent.select_for_update(of=("self",), no_key=True, skip_locked=True)[:limit]
    return Worker.objects.filter(pk__in=dead).update(stopped_at=Now(), running=0)


def _drop_old(limit: int) -> int:
    held = Attempt.objects.filter(worker_id=OuterRef("pk"), ended_at=None)
    old = Worker.objects.filter(~Exists(held), stopped_at__lt=Now() - KEPT_FOR).values_list("pk", flat=True)
    # Named again at the deletion: one that was missed may just have come back.
    gone = Worker.objects.filter(pk__in=list(old[:limit]), stopped_at__lt=Now() - KEPT_FOR)
    return gone.delete()[0]
