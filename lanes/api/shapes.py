"""What rows of this package look like from outside: plain functions from rows to JSON values."""

from __future__ import annotations

from typing import Any

from jobs import codecs
from jobs.clock import jsonable
from lanes.axes import Axis, possible
from lanes.models import Lane, LaneReceipt, Quorum


def quorum(row: Quorum) -> dict[str, Any]:
    """A quorum."""
    return {
        "id": str(row.pk), "workspace": row.workspace.slug, "name": row.name, "title": row.title, "by": row.by,
        "created_at": jsonable(row.created_at), "closed": row.closed_at is not None,
        "closed_at": jsonable(row.closed_at), "closed_by": row.closed_by, "close_reason": row.close_reason}


def lane(row: Lane, of_jobs: Any) -> dict[str, Any]:
    """A lane, with what its jobs come to for this caller."""
    return {
        "id": str(row.pk), "workspace": row.workspace.slug,
        "quorum": {"id": str(row.quorum_id), "name": row.quorum.name}, "name": row.name, "title": row.title,
        "branch": row.branch, "assignee": row.assignee, "task": row.task, "execution": row.execution,
        "review": row.review, "merge": row.merge, "commit": row.commit,
        "depends_on": [{"id": str(on.pk), "name": on.name, "execution": on.execution} for on in row.depends_on],
        "reconcile": None if row.reconcile_type is None else {
            "type": row.reconcile_type, "input": codecs.stored(row.reconcile_input)},
        "jobs": jobs(of_jobs), "version": row.version, "by": row.by, "created_at": jsonable(row.created_at),
        "moved_at": jsonable(row.moved_at), "ended_at": jsonable(row.ended_at)}


def in_full(row: Lane, of_jobs: Any) -> dict[str, Any]:
    """A lane as a single read shows it: with what leads on from where it stands."""
    return {**lane(row, of_jobs), "next": {axis.value: list(possible(row.standing, axis)) for axis in Axis}}


def jobs(standing: Any) -> dict[str, Any]:
    """What the jobs of a lane come to."""
    return {"states": dict(standing.states), "capped": standing.capped,
            "last_activity_at": jsonable(standing.last_activity_at), "dead_letters": standing.dead_letters}


def receipt(row: LaneReceipt) -> dict[str, Any]:
    """One change of a lane."""
    return {"number": row.number, "kind": row.kind, "axis": row.axis, "before": row.before, "after": row.after,
            "commit": row.commit, "by": row.by, "reason": row.reason, "version": row.version, "at": jsonable(row.at)}


def etag(row: Lane) -> str:
    """The version of a lane, as If-Match demands it."""
    return f'"v{row.version}"'
