"""Which lanes wait for which: finding those that are named, and what they wait for in turn."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from django.db import connection

from lanes.models import Lane
from lanes.store.doors import identifier

# All that is reached from some lanes; a lane is of one quorum, and so is what it reaches.
_REACHED = """WITH RECURSIVE reached(lane_id, on_id) AS (
        SELECT lane_id, on_id FROM lanes_dependency WHERE lane_id = ANY(%s::uuid[])
        UNION SELECT d.lane_id, d.on_id FROM reached r JOIN lanes_dependency d ON d.lane_id = r.on_id)
    SELECT lane_id, on_id FROM reached"""


def named(quorum_id: uuid.UUID, said: Sequence[str]) -> dict[str, uuid.UUID | None]:
    """The lanes of a quorum with these ids or names; None for what there is not, or is elsewhere."""
    ids = {word: id_ for word in said if (id_ := identifier(word)) is not None}
    mine = Lane.objects.filter(quorum_id=quorum_id)
    by_name = dict(mine.filter(name__in=said).values_list("name", "pk"))
    by_id = set(mine.filter(pk__in=ids.values()).values_list("pk", flat=True)) if ids else set()
    return {word: by_name.get(word) or (ids[word] if ids.get(word) in by_id else None) for word in said}


def edges(start: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[uuid.UUID]]:
    """What these lanes wait for, and those in turn."""
    found: dict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_REACHED, [[str(one) for one in start]])
        for lane_id, on_id in cursor.fetchall():
            found[lane_id].append(on_id)
    return found


def names(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """What lanes are called."""
    return dict(Lane.objects.filter(pk__in=ids).values_list("pk", "name"))


def names_on(lane_id: uuid.UUID) -> str:
    """The names of the lanes that a lane depends on, in order, for a receipt."""
    return ", ".join(sorted(Lane.objects.filter(dependents__lane_id=lane_id).values_list("name", flat=True)))
