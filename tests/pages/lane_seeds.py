"""Very many lanes by plain SQL, as the services would have made them."""

from __future__ import annotations

from typing import Any

from django.db import connection

from jobs.services import grants
from lanes.actors import of_user
from lanes.models import Quorum
from tests.lanes import making
from tests.pages.scale import _ID

_AT = "(jobs_now() - ({count} - n) * interval '20 milliseconds')"
# Most have ended long ago; the newest are under way, and wait for one another.
_LANES = """INSERT INTO lanes_lane (id, quorum_id, workspace_id, name, title, branch, task, assignee, assignee_user,
        execution, review, merge, commit, version, by, created_at, moved_at, ended_at)
    SELECT s.id, %s, %s, 'lane-' || n, 'Lane number ' || n, 'work/' || n, 'thread ' || n, %s, %s,
        s.execution, CASE WHEN s.merged THEN 'approved' ELSE 'none' END,
        CASE WHEN s.merged THEN 'merged' ELSE 'none' END, CASE WHEN s.merged THEN 'c0ffee1' END, 3, 'user:seed',
        s.at, s.at, CASE WHEN s.merged OR s.execution IN ('failed', 'cancelled') THEN s.at END
    FROM (SELECT n, {at} AS at, {id} AS id, n % 3 > 0 AND n <= {count} - 300 AND n % 10 > 1 AS merged,
        CASE WHEN n > {count} - 100 THEN 'open' WHEN n > {count} - 300 THEN 'in_progress' WHEN n % 10 = 0 THEN 'failed'
            WHEN n % 10 = 1 THEN 'cancelled' ELSE 'done' END AS execution FROM generate_series(1, {count}) n) s"""
_WAITS = """INSERT INTO lanes_dependency (lane_id, on_id)
    SELECT id, lag(id) OVER (ORDER BY id) FROM (SELECT id FROM lanes_lane WHERE quorum_id = %s ORDER BY id DESC
        LIMIT 301) newest OFFSET 1"""
_RECEIPTS = """INSERT INTO lanes_receipt (lane_id, number, kind, by, reason, version, at)
    SELECT id, 1, 'created', by, '', 1, created_at FROM lanes_lane WHERE quorum_id = %s"""
# The jobs that there are, ten to each of the newest lanes that they suffice for.
_JOBS = """INSERT INTO lanes_job (job_id, lane_id, by, created_at)
    SELECT job.id, lane.id, 'user:seed', jobs_now()
    FROM (SELECT id, (row_number() OVER (ORDER BY id DESC) - 1) / 10 AS place FROM jobs_job LIMIT 3000) job
    JOIN (SELECT id, row_number() OVER (ORDER BY id DESC) - 1 AS place FROM lanes_lane LIMIT 300) lane
        ON lane.place = job.place"""


def seed(count: int, assignee: Any = None, *, where: str = "default", name: str = "seeded") -> Quorum:
    """So many lanes of one quorum, whose assignee somebody is."""
    who = assignee or making.user("seed-assignee", "assignee", where=where)
    quorum = making.quorum(name, where=where)
    at = _AT.format(count=count)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE lanes_lane DISABLE TRIGGER USER")
        cursor.execute("ALTER TABLE lanes_dependency DISABLE TRIGGER USER")
        lanes = _LANES.format(at=at, id=_ID.format(at=at, n="n").replace("%", "%%"), count=count)
        cursor.execute(lanes.replace(" % ", " %% "), [quorum.pk, quorum.workspace_id, who.name, who.user_id])
        cursor.execute(_WAITS, [quorum.pk])
        cursor.execute(_RECEIPTS, [quorum.pk])
        cursor.execute(_JOBS)
        cursor.execute("ALTER TABLE lanes_lane ENABLE TRIGGER USER")
        cursor.execute("ALTER TABLE lanes_dependency ENABLE TRIGGER USER")
        for table in ("lane", "dependency", "receipt", "job"):
            cursor.execute(f"VACUUM (ANALYZE) lanes_{table}")
    return quorum


def seed_for(user: Any, count: int) -> Quorum:
    """The same, all of them this user's, who is a conductor in three workspaces."""
    for slug in ("default", "elsewhere", "third"):
        grants.give(making.workspace(slug), "conductor", by="seed", user=user)
        making.lane(where=slug)
    return seed(count, of_user(user))


def paths(quorum: Quorum) -> list[str]:
    """A few looks at each page of lanes."""
    lanes = quorum.lanes.order_by("-pk")
    newest, oldest = lanes[150], lanes.reverse()[0]
    return ["/lanes/", "/lanes/?mine=1", f"/lanes/?quorum={quorum.pk}", "/lanes/?assignee=user:nobody",
            "/lanes/?execution=done", "/lanes/?execution=failed&mine=1", "/lanes/quorums/",
            f"/lanes/quorums/{quorum.pk}/", f"/lanes/{newest.pk}/", f"/lanes/{oldest.pk}/",
            f"/lanes/new/?quorum={quorum.pk}", f"/lanes/{newest.pk}/act/?deed=finish&version=3"]
