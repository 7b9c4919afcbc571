"""Jobs of lanes: which belong to one, enqueueing into one, and what they are doing, which is read and never stored.

No claim and no end of a job asks for any of this, or changes a lane (D6, E14.14).
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from django.db import transaction

from jobs.errors import Invalid, JobNotFound
from jobs.models import Job, Workspace
from jobs.routing import SYSTEM
from jobs.services import intake
from jobs.services.draft import Door, Request
from jobs.services.intake import Enqueued
from lanes import news
from lanes.actors import Actor
from lanes.errors import JobInOtherLane, LaneEnded
from lanes.models import Lane
from lanes.selectors import Work, jobs, lane_of
from lanes.selectors import work as standing
from lanes.services import asking
from lanes.store import doors, rows

__all__ = ["Work", "attach", "enqueue", "jobs", "lane_of", "standing"]
ENDPOINT = "lane"


def attach(lane_id: Any, job_id: Any, *, by: Actor) -> bool:
    """Make a job of the same workspace this lane's; false where it is so already. By conductors (D2).

    The lane's version stays: nothing of its standing has changed. Raises LaneNotFound, RoleRequired, LaneEnded,
    JobNotFound (alike for unknown and foreign ones, and for the house's own) and JobInOtherLane.
    """
    id_, _ = asking.lane(lane_id, by)
    with transaction.atomic():
        lane = _locked(id_, by)
        return _attached(lane, _job(lane.workspace_id, job_id, by), by)


def enqueue(lane_id: Any, request: Request, *, by: Actor, door: Door | None = None) -> Enqueued:
    """Enqueue a job in the lane's workspace and make it the lane's, both or neither. By conductors (D2).

    A repeat brings the job that there is. `door`: what the edge stamps on it. Raises as `attach` does, and what
    `intake.enqueue` raises.
    """
    id_, _ = asking.lane(lane_id, by)
    with transaction.atomic():
        lane = _locked(id_, by)
        slug = Workspace.objects.values_list("slug", flat=True).get(pk=lane.workspace_id)
        if request.options.workspace not in (None, slug):
            raise Invalid("A job of a lane is in the lane's workspace.", field="workspace", code="invalid_workspace")
        mine = replace(request, options=replace(request.options, workspace=slug))
        made = intake.enqueue_many([mine], door=door or Door(ENDPOINT, by=by.name))[0]
        # Once more as attach asks it: what a repeat or a steer has hit may be none of the caller's.
        _attached(lane, _job(lane.workspace_id, made.id, by), by)
        return made


def _locked(lane_id: uuid.UUID, by: Actor) -> Lane:
    lane = asking.locked_lane(lane_id, by)
    if lane.ended_at is not None:
        raise LaneEnded()
    return lane


def _job(workspace_id: int, job_id: Any, by: Actor) -> uuid.UUID:
    id_ = doors.identifier(job_id)
    theirs = {} if by.tenant_id is None else {"tenant_id": by.tenant_id}
    mine = Job.objects.filter(workspace_id=workspace_id, **theirs).exclude(worker_group=SYSTEM)
    if id_ is None or not mine.filter(pk=id_).exists():
        raise JobNotFound(field="job_id")
    return id_


def _attached(lane: Lane, job_id: uuid.UUID, by: Actor) -> bool:
    if rows.has_job(lane.pk, job_id):
        return False
    if rows.add_job(lane.pk, job_id, by.name) is not None:
        raise JobInOtherLane(field="job_id")
    rows.receipt(lane.pk, "job", by=by.name, version=lane.version, after=str(job_id))
    news.after_commit(news.News(lane.workspace_id, lane.quorum_id, lane.pk, lane.version))
    return True
