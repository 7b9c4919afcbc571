"""What changes a lane over HTTP: its three axes, whose it is, and what it waits for (D9, D10, D11).

`If-Match` holds a change to the version that was read (412 where it has moved on); without it the latest is meant.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing
from jobs.api.describing import Fields, listed, or_null, ref, text, told
from jobs.errors import Invalid
from jobs.services.keys import Permission
from lanes import words
from lanes.api.acting import OfLane, for_lane
from lanes.api.lanes import one
from lanes.axes import Axis, verbs
from lanes.services import lanes

_REASON = {"reason": text("Why, for the lane's history", most=words.REASON_LIMIT)}
_STATE = {"state": text(among=verbs(Axis.EXECUTION)), **_REASON}
_REVIEW = {"review": text(among=verbs(Axis.REVIEW)), **_REASON}
_MERGE = {"outcome": text(among=verbs(Axis.MERGE)), **_REASON,
          "commit": or_null(text("7 to 64 hexadecimal digits; `merged` takes one", most=64))}
_ASSIGNEE = {"assignee": text("`user:NAME` or `key:PREFIX`", most=200), **_REASON}
_DEPENDENCIES = {"depends_on": listed(text(), "All of them, by id or name", most=words.MOST_DEPENDENCIES), **_REASON}
_REFUSED = {403: "role_required", 404: "lane_not_found", 409: "lane_ended lane_move_refused",
            412: "lane_version_changed"}


def _said(request: Request, name: str, known: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """The body, and what every change says: who, which version was read, why."""
    body = parsing.body(request, known)
    version, reason = parsing.if_match(request, "v"), fields.text(body, "reason", default="")
    return body, {"by": for_lane(request, name), "version": version, "reason": reason}


class State(OfLane):
    """`/lanes/{id}/state`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneInFull")}, body=_STATE, needed=("state",), headers=("If-Match",),
          example={"state": "in_progress"}, refuses={**_REFUSED, 400: "unknown_state"})
    def post(self, request: Request, name: str) -> Response:
        """Move its execution: open, in_progress, done or failed; cancelled as long as it has not ended.

        For conductors; review and merge stay (D9).
        """
        body, said = _said(request, name, _STATE)
        return one(lanes.set_state(name, fields.text(body, "state"), **said), said["by"])


class Review(OfLane):
    """`/lanes/{id}/review`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneInFull")}, body=_REVIEW, needed=("review",), headers=("If-Match",),
          example={"review": "submit"}, refuses={**_REFUSED, 400: "unknown_review"})
    def post(self, request: Request, name: str) -> Response:
        """`submit` by a conductor or its assignee, `approve` and `request_changes` by a conductor (D10)."""
        body, said = _said(request, name, _REVIEW)
        return one(lanes.review(name, fields.text(body, "review"), **said), said["by"])


class Merge(OfLane):
    """`/lanes/{id}/merge`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneInFull")}, body=_MERGE, needed=("outcome",), headers=("If-Match",),
          example={"outcome": "merged", "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8"},
          refuses={**_REFUSED, 400: "unknown_outcome commit_required",
                   409: "lane_ended lane_move_refused not_mergeable"})
    def post(self, request: Request, name: str) -> Response:
        """Record what became of its branch; nothing is merged here. For conductors.

        `merged` takes a lane that is done and approved, and the commit (D11).
        """
        body, said = _said(request, name, _MERGE)
        outcome, commit = fields.text(body, "outcome"), fields.named(body, "commit")
        return one(lanes.merge(name, outcome, commit=commit, **said), said["by"])


class Assignee(OfLane):
    """`/lanes/{id}/assignee`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneInFull")}, body=_ASSIGNEE, needed=("assignee",), headers=("If-Match",),
          example={"assignee": "user:bob"}, refuses=_REFUSED)
    def post(self, request: Request, name: str) -> Response:
        """Give it to somebody else: it has one. For conductors (D7)."""
        body, said = _said(request, name, _ASSIGNEE)
        return one(lanes.reassign(name, fields.text(body, "assignee"), **said), said["by"])


class Dependencies(OfLane):
    """`/lanes/{id}/dependencies`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneInFull")}, body=_DEPENDENCIES, needed=("depends_on",), headers=("If-Match",),
          example={"depends_on": ["lexer"]}, refuses={**_REFUSED, 400: "invalid_dependency dependency_cycle"})
    def post(self, request: Request, name: str) -> Response:
        """Let it depend on these lanes of its quorum and no others. For conductors (D8)."""
        body, said = _said(request, name, _DEPENDENCIES)
        if "depends_on" not in body:
            raise Invalid("is missing", field="depends_on", code="missing_field")
        return one(lanes.depend(name, body["depends_on"], **said), said["by"])
