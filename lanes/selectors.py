"""Reads of lanes: what an actor's grants let it see, and nothing of a workspace where it has none (D12, E2).

One that is named is refused alike where it is foreign and where there is none; lists leave out what is not the
actor's without a word. Nothing here writes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.core import signing
from django.db.models import Prefetch, QuerySet

from jobs.errors import Invalid
from jobs.models import Job
from jobs.selectors import HEAVY, Page
from jobs.states import TERMINAL
from lanes import words
from lanes.actors import Actor
from lanes.axes import Axis
from lanes.errors import LaneNotFound, QuorumNotFound
from lanes.models import Dependency, Lane, LaneJob, LaneReceipt, Quorum
from lanes.store import doors, looking
from lanes.store.doors import Door
from lanes.store.people import find as principal
from lanes.store.people import live_keys

__all__ = ["Work", "dependents", "jobs", "lane", "lane_door", "lane_of", "lanes", "live_keys", "principal", "quorum",
           "quorum_door", "quorums", "read", "receipts", "work"]
LIMIT, MOST = 50, 200
_ENDED = {state.value for state in TERMINAL}


# --- doors -----------------------------------------------------------------------------------------------------------


def lane_door(lane_id: Any, by: Actor) -> tuple[uuid.UUID, Door]:
    """A lane's id, and what this actor is to it. Raises LaneNotFound before anything of the lane is read."""
    id_ = doors.identifier(lane_id)
    door = doors.of_lane(id_, by) if id_ is not None else None
    if id_ is None or door is None:
        raise LaneNotFound()
    return id_, door


def quorum_door(quorum_id: Any, by: Actor) -> tuple[uuid.UUID, Door]:
    """The same of a quorum. Raises QuorumNotFound."""
    id_ = doors.identifier(quorum_id)
    door = doors.of_quorum(id_, by) if id_ is not None else None
    if id_ is None or door is None:
        raise QuorumNotFound()
    return id_, door


# --- one -------------------------------------------------------------------------------------------------------------


def _lanes() -> QuerySet[Lane]:
    waits = Dependency.objects.select_related("on").order_by("on__name")
    return Lane.objects.select_related("quorum", "workspace").prefetch_related(Prefetch("dependencies", waits))


def lane(lane_id: Any, *, by: Actor) -> Lane:
    """The lane, with its quorum and what it depends on. Raises LaneNotFound."""
    id_, _ = lane_door(lane_id, by)
    return read(id_)


def read(lane_id: uuid.UUID) -> Lane:
    """The same for who has come through its door. Raises LaneNotFound."""
    found = _lanes().filter(pk=lane_id).first()
    if found is None:
        raise LaneNotFound()
    return found


def dependents(lane_id: uuid.UUID, limit: int = MOST) -> list[Lane]:
    """The lanes that wait for this one, for who has come through its door."""
    return list(Lane.objects.filter(dependencies__on_id=lane_id).order_by("name")[:limit])


def quorum(quorum_id: Any, *, by: Actor) -> Quorum:
    """The quorum, with its workspace. Raises QuorumNotFound."""
    id_, _ = quorum_door(quorum_id, by)
    return Quorum.objects.select_related("workspace").get(pk=id_)


# --- lists -----------------------------------------------------------------------------------------------------------


def lanes(*, by: Actor, workspace_id: int | None = None, quorum: Any = None, execution: str | None = None,
          review: str | None = None, merge: str | None = None, assignee: str | None = None,
          cursor: str | None = None, limit: int = LIMIT) -> Page:
    """Lanes that this actor may see, newest first (D12).

    Raises Invalid unknown_state, invalid_cursor and invalid_limit, and TooSlow.
    """
    asked = {"workspace_id": workspace_id, "quorum_id": _quorum_id(quorum), "assignee": assignee,
             "execution": words.state(Axis.EXECUTION, execution), "review": words.state(Axis.REVIEW, review),
             "merge": words.state(Axis.MERGE, merge)}
    return _page("lanes_lane", by, asked, cursor, limit, _lanes())


def quorums(*, by: Actor, workspace_id: int | None = None, closed: bool | None = None, cursor: str | None = None,
            limit: int = LIMIT) -> Page:
    """Quorums that this actor may see, newest first. Raises Invalid invalid_cursor and invalid_limit, and TooSlow."""
    return _page("lanes_quorum", by, {"workspace_id": workspace_id, "closed": closed}, cursor, limit,
                 Quorum.objects.select_related("workspace"))


# What is shaped like no id names no quorum.
_NOWHERE = uuid.UUID(int=0)


def _quorum_id(said: Any) -> uuid.UUID | None:
    return None if said is None else doors.identifier(said) or _NOWHERE


def _page(table: str, by: Actor, asked: dict[str, Any], cursor: str | None, limit: int, rows: QuerySet[Any]) -> Page:
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise Invalid(f"must be a whole number from 1 to {MOST}", field="limit", code="invalid_limit")
    # A cursor is good for the list that it came from, and for nobody else's.
    salt = hashlib.sha256(repr((table, by.user_id, by.key_id, sorted(asked.items()))).encode()).hexdigest()
    signer = signing.Signer(salt=f"lanes.cursor:{salt}")
    before = _unsigned(signer, cursor) if cursor is not None else None
    if any(isinstance(value, str) and not value.isprintable() for value in asked.values()):
        return Page([], None)
    spots = doors.spots(by, asked.pop("workspace_id"), asked.get("quorum_id"))
    ids = looking.page(table, spots, _conditions(asked), limit=limit + 1, before=before)
    found = {row.pk: row for row in rows.filter(pk__in=ids[:limit])}
    shown = [found[id_] for id_ in ids[:limit] if id_ in found]
    return Page(shown, signer.sign(ids[limit - 1].hex) if len(ids) > limit else None)


def _conditions(asked: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in asked.items() if value is not None}
    closed = said.pop("closed", None)
    conditions = {f"x.{name} = %s": value for name, value in said.items()}
    return conditions if closed is None else {**conditions, f"x.closed_at IS {'NOT ' if closed else ''}NULL": None}


def _unsigned(signer: signing.Signer, cursor: str) -> uuid.UUID:
    try:
        return uuid.UUID(signer.unsign(cursor))
    except (signing.BadSignature, ValueError):
        raise Invalid("This cursor does not belong to this list.", field="cursor", code="invalid_cursor") from None


def receipts(lane_id: Any, *, by: Actor, after: int = 0, limit: int = MOST) -> Page:
    """Receipts of a lane with a number above `after`, in order; the number is the only cursor. Raises LaneNotFound.

    To a key that sees one tenant those of other tenants' jobs name none (C25).
    """
    id_, _ = lane_door(lane_id, by)
    found = list(LaneReceipt.objects.filter(lane_id=id_, number__gt=after).order_by("number")[: limit + 1])
    if by.tenant_id is not None:
        told = [one for one in found if one.kind == "job"]
        mine = set(Job.objects.filter(pk__in=[one.after for one in told], tenant_id=by.tenant_id)
                   .values_list("pk", flat=True))
        for one in told:
            one.after = one.after if doors.identifier(one.after) in mine else None
    return Page(found[:limit], found[limit - 1].number if len(found) > limit else None)


# --- jobs ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """What the jobs of a lane are doing, as it was read: how many are in each state, and the latest sign of life.

    `gone` are those that retention has deleted. Of more than `looking.MOST_JOBS` the newest are told, `capped`.
    """

    counts: dict[str, int] = field(default_factory=dict)
    last_activity: datetime | None = None
    dead_letters: int = 0
    gone: int = 0
    capped: bool = False

    @property
    def active(self) -> int:
        """How many have not ended."""
        return sum(n for state, n in self.counts.items() if state not in _ENDED)


def work(lane_ids: Collection[uuid.UUID], *, by: Actor | None = None) -> dict[uuid.UUID, Work]:
    """What the jobs of each of these lanes are doing: one statement for a page of lanes, and never stored.

    For who has come through their doors. A key that sees one tenant is told of that tenant's jobs (C25).
    """
    told = {id_: Work() for id_ in lane_ids}
    for part in looking.work(list(told), by.tenant_id if by is not None else None):
        one = told[part.lane_id]
        one.capped |= part.beyond
        if part.state is None:
            one.gone = part.jobs
            continue
        if part.jobs:
            one.counts[part.state] = part.jobs
        one.dead_letters += part.letters
        one.last_activity = max(filter(None, (one.last_activity, part.latest)), default=None)
    return told


def jobs(lane_id: Any, *, by: Actor, before: Any = None, limit: int = LIMIT) -> list[tuple[LaneJob, Job | None]]:
    """The jobs of a lane, newest first, each with its job, None where that is gone; below the job `before`.

    Raises LaneNotFound. A key that sees one tenant is shown that tenant's jobs alone (C25).
    """
    id_, _ = lane_door(lane_id, by)
    mine = LaneJob.objects.filter(lane_id=id_)
    if by.tenant_id is not None:
        mine = mine.filter(job_id__in=Job.objects.filter(tenant_id=by.tenant_id).values("pk"))
    if before is not None:
        mine = mine.filter(job_id__lt=doors.identifier(before) or _NOWHERE)
    found: Sequence[LaneJob] = list(mine.order_by("-job_id")[:limit])
    rows = Job.objects.select_related("tenant").defer(*HEAVY).in_bulk([one.job_id for one in found])
    return [(one, rows.get(one.job_id)) for one in found]


def lane_of(job_id: Any, *, by: Actor) -> Lane | None:
    """The lane that a job belongs to, if there is one and this actor may see it."""
    id_ = doors.identifier(job_id)
    found = LaneJob.objects.filter(pk=id_).values_list("lane_id", flat=True).first() if id_ is not None else None
    return read(found) if found is not None and doors.of_lane(found, by) is not None else None
