"""Worker rows: who is there, what it can run, when it was last seen (E7)."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from datetime import timedelta

from jobs.clock import Now
from jobs.models import Worker

LIVE_FOR = timedelta(seconds=60)


def register(name: str, slots: int, worker_groups: Sequence[str], queues: Sequence[str],
             types: Sequence[str]) -> Worker:
    """A row for this life of the process; a restarted worker is another one (case-A15)."""
    worker = Worker(id=uuid.uuid4(), name=name[:200], host=socket.gethostname()[:255], pid=os.getpid(), slots=slots,
                    worker_groups=list(worker_groups), queues=list(queues), types=list(types))
    worker.save(force_insert=True)
    return worker


def seen(worker_id: uuid.UUID, running: int) -> None:
    """Its heartbeat."""
    Worker.objects.filter(pk=worker_id).update(seen_at=Now(), running=running)


def stopped(worker_id: uuid.UUID) -> None:
    """It ended in order."""
    Worker.objects.filter(pk=worker_id, stopped_at=None).update(stopped_at=Now(), running=0)


def known_types() -> set[str]:
    """Every `type@version` that some live worker can run."""
    live = Worker.objects.filter(stopped_at=None, seen_at__gt=Now() - LIVE_FOR)
    return {name for types in live.values_list("types", flat=True) for name in types}
