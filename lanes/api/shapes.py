"""What rows of this package look like from outside: plain functions from rows to JSON values."""

from __future__ import annotations

from typing import Any

from jobs import codecs
from jobs.clock import jsonable
from jobs.models import Job
from jobs.states import status
from lanes.axes import Axis, possible
from lanes.models import Lane, LaneJob, LaneReceipt, Quorum
from lanes.services.lane_jobs import Work


def quorum(row: Quorum) -> dict[str, Any]:
    """A quorum."""
    return {
        "id": str(row.pk), "workspace": row.workspace.slug, "name": row.name, "title": row.title, "by": row.by,
        "created_at": jsonable(row.created_at), "closed": row.closed_at is not None,
        "closed_at": jsonable(row.closed_at), "closed_by": row.closed_by, "close_reason": row.close_reason}


def lane(row: Lane, work: Work) -> dict[str, Any]:
    """A lane, with what its jobs come to for this caller."""
    return {
        "id": str(row.pk), "workspace": row.workspace.slug,
        "quorum": {"id": str(row.quorum_id), "name": row.quorum.name}, "name": row.name, "title": row.title,
        "branch": row.branch, "assignee": row.assignee, "task": row.task, "execution": row.execution,
        "review": row.review, "merge": row.merge, "commit": row.commit,
        "depends_on": [{"id": str(on.pk), "name": on.name, "execution": on.execution} for on in row.depends_on],
        "reconcile": None if row.reconcile_type is None else {
            "type": row.reconcile_type, "input": codecs.stored(row.reconcile_input)},
        "jobs": jobs(work), "version": row.version, "by": row.by, "created_at": jsonable(row.created_at),
        "moved_at": jsonable(row.moved_at), "ended_at": jsonable(row.ended_at)}


def in_full(row: Lane, work: Work) -> dict[str, Any]:
    """A lane as a single read shows it: with what leads on from where it stands."""
    return {**lane(row, work), "next": {axis.value: list(possible(row.standing, axis)) for axis in Axis}}


def jobs(work: Work) -> dict[str, Any]:
    """What the jobs of a lane come to."""
    return {"counts": dict(sorted(work.counts.items())), "active": work.active, "gone": work.gone,
            "capped": work.capped, "dead_letters": work.dead_letters, "last_activity_at": jsonable(work.last_activity)}


def job(one: LaneJob, row: Job | None) -> dict[str, Any]:
    """A job of a lane in short, and who made it the lane's; of one that is gone there is no more to tell."""
    told = {"id": str(one.job_id), "by": one.by, "attached_at": jsonable(one.created_at), "gone": row is None}
    if row is None:
        return told
    return {**told, "job_id": row.external_id, "type": row.type, "version": row.version, "status": status(row.state),
            "state": row.state, "reason": row.reason, "tenant_subject": row.tenant.subject, "claims": row.claims,
            "failures": row.failures, "created_at": jsonable(row.created_at), "started_at": jsonable(row.started_at),
            "ended_at": jsonable(row.ended_at)}


def receipt(row: LaneReceipt) -> dict[str, Any]:
    """One change of a lane."""
    return {"number": row.number, "kind": row.kind, "axis": row.axis, "before": row.before, "after": row.after,
            "commit": row.commit, "by": row.by, "reason": row.reason, "version": row.version, "at": jsonable(row.at)}


def etag(row: Lane) -> str:
    """The version of a lane, as If-Match demands it."""
    return f'"v{row.version}"'
