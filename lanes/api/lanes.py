"""Lanes over HTTP: make one, list them, read one, and what became of it (D7, D8, D12)."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing
from jobs.api.describing import anything, listed, or_null, ref, text, thing, told, whole
from jobs.api.security import caller
from jobs.api.shapes import page
from jobs.api.views import answer
from jobs.services.keys import Permission
from lanes import selectors, words
from lanes.actors import Actor
from lanes.api import shapes
from lanes.api.acting import OfLane, OfLanes, actor, for_lane, for_quorum
from lanes.axes import Execution, Merge, Review
from lanes.models import Lane as Row
from lanes.services import lane_jobs, lanes
from lanes.services.lanes import LaneDraft

MAX_NUMBER = 999_999_999
_RECONCILE = thing({"type": text(most=64), "input": anything("By its definition's schema")}, optional=("input",))
_FIELDS = {
    "quorum": text("The id of its quorum"), "name": text("Once in its quorum", most=words.NAME_LIMIT),
    "title": text("For people", most=words.TITLE_LIMIT),
    "branch": text("As git has it", most=words.BRANCH_LIMIT),
    "assignee": text("`user:NAME` or `key:PREFIX`, an assignee or conductor of the workspace", most=200),
    "task": text("Its one task thread, an address or a name", most=words.TASK_LIMIT),
    "depends_on": listed(text(), "Lanes of the same quorum, by id or name", most=words.MOST_DEPENDENCIES),
    "reconcile": or_null(_RECONCILE)}
_LIST = {
    "quorum": text("Of this quorum, by its id"), "execution": text(among=tuple(Execution)),
    "review": text(among=tuple(Review)), "merge": text(among=tuple(Merge)), "assignee": text("As `user:ann`"),
    "limit": whole(1, selectors.MOST, default=selectors.LIMIT), "cursor": text("As `next_cursor` said")}
_AFTER = {"after": whole(0, MAX_NUMBER, "Those behind this number", default=0),
          "limit": whole(1, selectors.MOST, default=selectors.LIMIT)}
_NONE = {404: "lane_not_found"}
_STATES = "unknown_state unknown_review unknown_outcome"


class Lanes(OfLanes):
    """`/lanes`."""

    permissions = {"POST": Permission.LANES, "GET": Permission.LANES}

    @told({201: ref("LaneInFull")}, body=_FIELDS, needed=("quorum", "name", "branch", "assignee", "task"),
          refuses={400: "invalid_dependency dependency_cycle invalid_input",
                   403: "role_required origin_forbidden definition_disabled",
                   404: "quorum_not_found", 409: "quorum_closed lane_exists branch_taken",
                   422: "unknown_job_type"},
          example={"quorum": "0197c000-0000-7000-8000-000000000000", "name": "parser", "branch": "lane/parser",
                   "assignee": "user:ann", "task": "https://tracker.example.com/7", "depends_on": ["lexer"]})
    def post(self, request: Request) -> Response:
        """Make one in its quorum's workspace, for good; all about it is checked now. For conductors (D8)."""
        body = parsing.body(request, _FIELDS)
        quorum = fields.text(body, "quorum")
        draft = LaneDraft(**{name: fields.text(body, name) for name in ("name", "branch", "assignee", "task")},
                          title=fields.text(body, "title", default=""), depends_on=body.get("depends_on", ()),
                          reconcile=body.get("reconcile"))
        by = for_quorum(request, quorum)
        with parsing.beneath("reconcile/input"):
            made = lanes.create(quorum, draft, by=by)
        return one(made, by, 201, Location=f"{request.path}/{made.pk}")

    @told({200: ref("Lanes")}, query=_LIST, refuses={400: _STATES, 503: "too_slow"})
    def get(self, request: Request) -> Response:
        """What the caller may see, newest first; of the rest not a word (D12)."""
        said = parsing.query(request, *_LIST)
        by = actor(request)
        found = lanes.listing(
            by=by, workspace_id=caller(request).place.pk, **{name: said.get(name) for name in _LIST if name != "limit"},
            limit=fields.whole(said, "limit", selectors.LIMIT, 1, selectors.MOST))
        work = lane_jobs.standing([row.pk for row in found.items], by=by)
        return answer(page("lanes", found, [shapes.lane(row, work[row.pk]) for row in found.items]))


class Lane(OfLane):
    """`/lanes/{id}`."""

    permissions = {"GET": Permission.LANES}

    @told({200: ref("LaneInFull")}, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """Read one: its three axes, what leads on from there, and what its jobs come to. Its ETag is its version."""
        parsing.query(request)
        by = for_lane(request, name)
        return one(lanes.get(name, by=by), by)


class Receipts(OfLane):
    """`/lanes/{id}/receipts`."""

    permissions = {"GET": Permission.LANES}

    @told({200: ref("LaneReceipts")}, query=_AFTER, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """Every change of it in order, by whom and why; `?after=` a number."""
        said = parsing.query(request, *_AFTER)
        found = lanes.receipts(name, by=for_lane(request, name), after=fields.whole(said, "after", 0, 0, MAX_NUMBER),
                               limit=fields.whole(said, "limit", selectors.LIMIT, 1, selectors.MOST))
        return answer(page("receipts", found, [shapes.receipt(row) for row in found.items], "after"))


def one(row: Row, by: Actor, status: int = 200, **headers: Any) -> Response:
    """A lane as the answer to who has read or changed it."""
    told = shapes.in_full(row, lane_jobs.standing([row.pk], by=by)[row.pk])
    return answer(told, status, ETag=shapes.etag(row), **headers)
