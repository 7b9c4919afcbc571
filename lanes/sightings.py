"""Reads of lanes' pages beside those that `selectors` has for everybody: what a reader is where, what to choose from,
and which lanes news of jobs concern. All bounded; nothing here writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db.models import Prefetch, QuerySet

from jobs.models import DeadLetter, Grant, Workspace
from lanes import selectors
from lanes.actors import Actor
from lanes.axes import Execution, Role
from lanes.models import Dependency, Lane, LaneJob, LaneReceipt, Quorum
from lanes.news import News

RECEIPTS, JOBS, CHOICES = 50, 25, 200
# Of workspaces; of more than that the database sorts out itself whose lanes are whose.
MOST_PARTS = 20
# What has happened since a form was opened.
MEANWHILE = 10


class Rows(NamedTuple):
    """Some rows, and what the next ones come behind; None: these were all."""

    rows: list[Any]
    older: Any = None


def roles(user_id: Any) -> dict[int, Role]:
    """What a user is, by workspace. Nobody is anything by being a superuser (E15)."""
    found = Grant.objects.filter(user_id=str(user_id)).values_list("workspace_id", "role")
    return {workspace_id: Role(role) for workspace_id, role in found}


def workspaces(user_id: Any) -> frozenset[int]:
    """Where a user is anything."""
    return frozenset(roles(user_id))


def named(workspace_ids: Collection[int]) -> list[Workspace]:
    """These workspaces by their slugs."""
    return list(Workspace.objects.filter(pk__in=workspace_ids).order_by("slug"))


# --- the board -------------------------------------------------------------------------------------------------------


def board(mine: Collection[int], states: Collection[Execution], narrowed: Mapping[str, Any], *, most: int,
          before: uuid.UUID | None = None) -> dict[Execution, Rows]:
    """The newest lanes of these workspaces in each state, at most so many; older than `before` where that is said.

    `narrowed` is a filter of rows. Four statements, whatever there is.
    """
    lanes = Lane.objects.filter(**narrowed).order_by("-pk")
    if before is not None:
        lanes = lanes.filter(pk__lt=before)
    found: dict[str, list[uuid.UUID]] = {state.value: [] for state in states}
    for pk, state in _newest(lanes, mine, found, most + 1):
        found[state].append(pk)
    for ids in found.values():
        ids.sort(reverse=True)
    rows = _rows(pk for ids in found.values() for pk in ids[:most])
    return {state: Rows([rows[pk] for pk in found[state.value][:most] if pk in rows],
                        found[state.value][most - 1] if len(found[state.value]) > most else None) for state in states}


def _newest(lanes: QuerySet[Lane], mine: Collection[int], states: Collection[str], most: int) -> QuerySet[Any]:
    """Each workspace and state by a part of its own: named by a constant, each is looked up in the index that fits.

    Asked with a parameter the database would go back through everybody's lanes for those of a small workspace.
    """
    places: list[dict[str, Any]] = [{"workspace_id": one} for one in sorted(mine)]
    if len(places) > MOST_PARTS:
        places = [{"workspace_id__in": list(mine)}]
    first, *others = (lanes.filter(**place, execution=state).values_list("pk", "execution")[:most]
                      for place in places for state in states)
    return first.union(*others, all=True) if others else first


def _rows(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Lane]:
    waits = Prefetch("dependencies", Dependency.objects.select_related("on").order_by("on__name"))
    return Lane.objects.select_related("quorum", "workspace").prefetch_related(waits).in_bulk(list(ids))


# --- one lane --------------------------------------------------------------------------------------------------------


def history(lane: Lane, before: int | None) -> Rows:
    """Receipts of a lane, the newest first."""
    found = LaneReceipt.objects.filter(lane=lane).order_by("-number")
    rows = list((found if before is None else found.filter(number__lt=before))[: RECEIPTS + 1])
    return Rows(rows[:RECEIPTS], rows[RECEIPTS - 1].number if len(rows) > RECEIPTS else None)


def since(lane: Lane, version: int) -> list[LaneReceipt]:
    """What has changed a lane since this version of it, oldest first; the latest few."""
    found = LaneReceipt.objects.filter(lane=lane, version__gt=version).exclude(kind="job").order_by("-version")
    return list(found[:MEANWHILE])[::-1]


def jobs(lane: Lane, before: uuid.UUID | None, by: Actor) -> Rows:
    """The newest jobs of a lane: each with its row (None: gone) and the id of its open dead letter, if it has one."""
    found = selectors.jobs(lane.pk, by=by, before=before, limit=JOBS + 1)
    shown = found[:JOBS]
    ids = [one.job_id for one, _ in shown]
    letters = dict(DeadLetter.objects.filter(job_id__in=ids, resolved_at=None).values_list("job_id", "pk"))
    return Rows([(one, job, letters.get(one.job_id)) for one, job in shown],
                ids[-1] if len(found) > JOBS else None)


# --- forms -----------------------------------------------------------------------------------------------------------


def siblings(quorum: Quorum) -> list[Lane]:
    """The newest lanes of a quorum: what another one may wait for."""
    return list(Lane.objects.filter(quorum=quorum).only("id", "name", "execution").order_by("-pk")[:CHOICES])


def assignable(workspace_id: int) -> list[str]:
    """The names of those to whom a lane may be given now, a bounded number of them."""
    found = Grant.objects.filter(workspace_id=workspace_id, role__in=[Role.ASSIGNEE, Role.CONDUCTOR]).order_by("pk")
    pairs = list(found.values_list("user_id", "key_id")[:CHOICES])
    User = get_user_model()
    users = User._default_manager.filter(pk__in=[user for user, _ in pairs if user is not None], is_active=True)
    keys = selectors.live_keys().filter(pk__in=[key for _, key in pairs if key is not None])
    return sorted([*(f"user:{user.get_username()}" for user in users), *(f"key:{key.prefix}" for key in keys)])


# --- news ------------------------------------------------------------------------------------------------------------


def belonging(job_ids: Collection[str]) -> list[News]:
    """The lanes to which some of these jobs belong."""
    found = LaneJob.objects.filter(job_id__in=job_ids).order_by()
    return [News(*one) for one in found.values_list("lane__workspace_id", "lane__quorum_id", "lane_id").distinct()]
