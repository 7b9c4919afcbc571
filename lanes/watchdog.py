"""The watchdog of lanes: which of those in progress stand still, and the job that looks into each (A49).

It reads lanes and writes jobs, never a lane: what it has asked for is found by its key, which names what was seen, and
belongs to no lane, so that one standstill is asked about once however many look, and its answer is nobody's move. A
lane without such a job is reported, and shown by `standstills`.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Q
from pydantic import BaseModel, ConfigDict

from jobs.conf import registry
from jobs.errors import Invalid, JobsError
from jobs.models import Artifact, Firing, Job
from jobs.services import intake
from jobs.services.draft import Options, Request
from lanes import standstill
from lanes.services.reconcile import DOOR
from lanes.standstill import Cause, Work
from lanes.store import watching
from lanes.store.watching import FIRST, Seen

log = logging.getLogger("lanes.watchdog")
# Lanes of one look, whose reading is one statement; and rounds before this one, of which one has told where it ended.
TOGETHER, BEFORE = 200, 20


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why a lane in progress stands still, since when nothing has been heard of its work, and the job that was asked
    to look into it; None: there is none (yet).
    """

    lane_id: uuid.UUID
    cause: Cause
    since: datetime
    key: str
    job_id: uuid.UUID | None = None


class Round(BaseModel):
    """What a round did, as its job's artifact tells it. `after`: the lane that the next one begins behind."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    looked: int
    standing: int
    asked: int
    alone: int
    refused: int
    after: uuid.UUID | None


# --- reading -------------------------------------------------------------------------------------------------------


def standstills(lane_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Standstill]:
    """Those of these lanes that stand still now, for who has come through their doors; read and never stored."""
    seen = watching.among(lane_ids)
    return {one.lane_id: one for one in _judged(seen)}


def _judged(seen: Sequence[Seen]) -> list[Standstill]:
    found = [one for lane in seen if (one := judge(lane)) is not None]
    if not found:
        return []
    spots = {lane.id: lane.workspace_id for lane in seen}
    asked = _asked(found, spots)
    return [Standstill(one.lane_id, one.cause, one.since, one.key, asked.get((spots[one.lane_id], one.key)))
            for one in found]


def judge(lane: Seen) -> Standstill | None:
    """Whether and why this lane stands still. What was heard last of the work that says so is part of what was seen."""
    work = [Work((lane.now - heard).total_seconds(), not earlier)
            for heard, earlier in zip(lane.heard, lane.earlier, strict=True)]
    cause = standstill.cause(work)
    if cause is None:
        return None
    if cause == "no_active_objective_work":
        heard = [lane.ended_at] if lane.ended_at is not None else []
    elif cause == "phase_supersession_has_active_stale_job":
        # Not of the others, which may well be at work.
        heard = [at for at, one in zip(lane.heard, work, strict=True) if one.stale and not one.current]
    else:
        heard = list(lane.heard)
    latest = max(heard, default=None)
    key = standstill.key("lane", lane.id, lane.version, cause, latest and latest.timestamp())
    return Standstill(lane.id, cause, latest or lane.moved_at, key)


def _asked(found: Sequence[Standstill], spots: dict[uuid.UUID, int]) -> dict[tuple[int, str], uuid.UUID]:
    """The jobs that were made for these before: by the key's own index, in each workspace's untenanted tenant."""
    keys: dict[int, list[str]] = {}
    for one in found:
        keys.setdefault(spots[one.lane_id], []).append(one.key)
    of = Q()
    for workspace_id, mine in keys.items():
        of |= Q(tenant__workspace_id=workspace_id, tenant__subject=None, idempotency_key__in=mine)
    rows = Job.objects.filter(of).values_list("workspace_id", "idempotency_key", "id")
    return {(workspace_id, key): id_ for workspace_id, key, id_ in rows if key is not None}


# --- a round -------------------------------------------------------------------------------------------------------


def round_(limit: int, after: uuid.UUID | None = None) -> Round:
    """Look at the next `limit` lanes in progress (clamped to 1..2,000) behind `after`; ask once for what is seen.

    In the order of their ids, and from the first one again behind the last, so that each has its turn however many
    there are. Whatever dies in between, the next round asks for what is missing, and for nothing twice.
    """
    left, spot = standstill.clamped(limit), after or FIRST
    looked = standing = 0
    told: list[str] = []
    while left > 0:
        some = min(left, TOGETHER)
        seen = watching.after(spot, some)
        looked += len(seen)
        lanes = {lane.id: lane for lane in seen}
        found = _judged(seen)
        standing += len(found)
        told += [_ask(lanes[one.lane_id], one) for one in found if one.job_id is None]
        left -= some
        if len(seen) < some:
            return _told(looked, standing, told, None)
        spot = seen[-1].id
    return _told(looked, standing, told, spot)


def _told(looked: int, standing: int, told: Sequence[str], after: uuid.UUID | None) -> Round:
    return Round(looked=looked, standing=standing, asked=told.count("asked"), alone=told.count("alone"),
                 refused=told.count("refused"), after=after)


def _ask(lane: Seen, one: Standstill) -> str:
    """Enqueue the lane's reconcile job for this standstill; what became of it."""
    said = {"lane": str(lane.id), "workspace": lane.workspace, "cause": one.cause}
    if lane.reconcile_type is None or lane.reconcile_input is None:
        log.warning("lane %s stands still (%s), and has no job that looks into it", lane.id, one.cause,
                    extra={"event": "lane.stands_still", **said})
        return "alone"
    try:
        made = intake.enqueue_many([Request(
            lane.reconcile_type, _input(lane.reconcile_type, json.loads(lane.reconcile_input), one.cause),
            Options(workspace=lane.workspace, idempotency_key=one.key))], door=DOOR)[0]
    except JobsError as error:
        # Again in the next round: what refuses it may pass.
        log.warning("the job that looks into lane %s is refused (%s): %s", lane.id, error.reason_code, error.message,
                    extra={"event": "lane.stands_still", "code": error.reason_code, **said})
        return "refused"
    except Exception:
        # A hook of the site's that raises for one: the others have their turn all the same.
        if not connection.is_usable():
            raise
        log.exception("the job that looks into lane %s cannot be made", lane.id, extra=said)
        return "refused"
    log.info("lane %s stands still (%s): job %s looks into it", lane.id, one.cause, made.id,
             extra={"event": "lane.stands_still", "asked": made.id, **said})
    return "repeated" if made.repeated else "asked"


def _input(type_: str, own: Any, cause: Cause) -> Any:
    """The lane's own input with the reason and the cause, as far as that type has a field for them."""
    told = {**own, "reason": standstill.REASON, "cause": cause} if isinstance(own, dict) else own
    try:
        registry().current(type_).input.normal(told)
    except Invalid:
        return own
    return told


def went_on_from(job_id: str) -> uuid.UUID | None:
    """Where the round before this job's ended, by what its timer's earlier jobs told; None: begin at the first lane."""
    mine = Firing.objects.filter(job_id=job_id).order_by("job_id").first()
    if mine is None:
        return None
    before = Firing.objects.filter(timer_id=mine.timer_id, moment__lt=mine.moment).exclude(job_id=None)
    ids = list(before.order_by("-moment").values_list("job_id", flat=True)[:BEFORE])
    told = Artifact.objects.in_bulk(ids)
    latest = next((told[id_].value for id_ in ids if id_ in told), "")
    return Round.model_validate_json(latest).after if latest else None
