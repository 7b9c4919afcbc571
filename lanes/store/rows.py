"""Writing lanes: inserts that find who was first, guarded changes, receipts numbered under the lane's lock.

The only module in which the columns of a lane's standing are written.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import F

from jobs.clock import Now
from lanes.axes import Axis, Standing
from lanes.models import Dependency, Lane, LaneJob, Quorum

# Nobody else appends to a locked lane. At REPEATABLE READ the latest number may be out of sight: the conflict is then
# the serialization failure that such callers know.
_NUMBERED = """INSERT INTO lanes_receipt (lane_id, number, kind, axis, before, after, commit, by, reason, version, at)
    SELECT %s, coalesce(max(number), 0) + 1, %s, %s, %s, %s, %s, %s, %s, %s, jobs_now()
    FROM lanes_receipt WHERE lane_id = %s ON CONFLICT (lane_id, number) DO NOTHING RETURNING number"""


# --- locks -----------------------------------------------------------------------------------------------------------


def lock_quorum(quorum_id: uuid.UUID, *, alone: bool) -> Quorum | None:
    """The quorum, until the commit: `alone` for who closes it or changes what its lanes wait for, else shared."""
    if alone:
        # Written, though nothing of it changes: two at REPEATABLE READ who only locked it would each decide without
        # what the other has made of it, and now the second is told to begin again.
        Quorum.objects.filter(pk=quorum_id).update(title=F("title"))
        return Quorum.objects.filter(pk=quorum_id).first()
    # Django has no FOR SHARE, and those who add lanes need not wait for each other.
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM lanes_quorum WHERE id = %s FOR SHARE", [quorum_id])
    return Quorum.objects.filter(pk=quorum_id).first()


def lock_lane(lane_id: uuid.UUID) -> Lane | None:
    """The lane as it is now, and stays until the commit."""
    # No skip_locked: two who change one lane stand in line, and the second is judged by what the first has made of it.
    return Lane.objects.select_for_update(of=("self",), no_key=True).filter(pk=lane_id).first()


# --- inserts ---------------------------------------------------------------------------------------------------------


def add_quorum(quorum: Quorum) -> bool:
    """Insert it; false where its workspace has one of this name."""
    Quorum.objects.bulk_create([quorum], ignore_conflicts=True)
    return Quorum.objects.filter(pk=quorum.pk).exists()


def add_lane(lane: Lane) -> bool:
    """Insert it; false where its quorum has one of this name, or this branch (`taken` says which)."""
    Lane.objects.bulk_create([lane], ignore_conflicts=True)
    return Lane.objects.filter(pk=lane.pk).exists()


def has_name(lane: Lane) -> bool:
    """Whether the quorum has a lane of this name."""
    return Lane.objects.filter(quorum_id=lane.quorum_id, name=lane.name).exists()


def add_job(lane_id: uuid.UUID, job_id: uuid.UUID, by: str) -> uuid.UUID | None:
    """Make a job this lane's. The lane that it belongs to already, else None."""
    LaneJob.objects.bulk_create([LaneJob(job_id=job_id, lane_id=lane_id, by=by)], ignore_conflicts=True)
    return LaneJob.objects.filter(pk=job_id).exclude(lane_id=lane_id).values_list("lane_id", flat=True).first()


def has_job(lane_id: uuid.UUID, job_id: uuid.UUID) -> bool:
    """Whether a job is this lane's."""
    return LaneJob.objects.filter(pk=job_id, lane_id=lane_id).exists()


def receipt(lane_id: uuid.UUID, kind: str, *, by: str, version: int, axis: Axis | None = None,
            before: str | None = None, after: str | None = None, commit: str | None = None, reason: str = "") -> int:
    """Append the next receipt of a lane that the caller has locked or made; its number."""
    with connection.cursor() as cursor:
        cursor.execute(_NUMBERED, [lane_id, kind, axis and axis.value, before, after, commit, by, reason, version,
                                   lane_id])
        return int(cursor.fetchone()[0])


# --- changes ---------------------------------------------------------------------------------------------------------


def close(quorum_id: uuid.UUID, by: str, reason: str) -> bool:
    """Close an open quorum; false where it is closed."""
    return bool(Quorum.objects.filter(pk=quorum_id, closed_at=None)
                .update(closed_at=Now(), closed_by=by, close_reason=reason))


def move(lane: Lane, axis: Axis, after: Standing, commit: str | None) -> bool:
    """Move a lane on one axis from where it was read; false where it is not there any more."""
    written: dict[str, Any] = {axis.value: after.on(axis)}
    if commit is not None:
        written["commit"] = commit
    if after.over:
        written["ended_at"] = Now()
    return _change(lane, **written)


def assign(lane: Lane, name: str, user_id: str | None, key_id: int | None) -> bool:
    """Give a lane to somebody else."""
    return _change(lane, assignee=name, assignee_user=user_id, assignee_key=key_id)


def depend(lane: Lane, on: Sequence[uuid.UUID]) -> bool:
    """Let a lane depend on these and no others."""
    if not _change(lane):
        return False
    Dependency.objects.filter(lane=lane).exclude(on__in=on).delete()
    add_dependencies(lane.pk, on)
    return True


def add_dependencies(lane_id: uuid.UUID, on: Sequence[uuid.UUID]) -> None:
    """Let a lane depend on these too."""
    Dependency.objects.bulk_create([Dependency(lane_id=lane_id, on_id=other) for other in on], ignore_conflicts=True)


def _change(lane: Lane, **written: Any) -> bool:
    guard = {axis.value: lane.standing.on(axis) for axis in Axis}
    return bool(Lane.objects.filter(pk=lane.pk, version=lane.version, ended_at=None, **guard)
                .update(version=F("version") + 1, moved_at=Now(), **written))
