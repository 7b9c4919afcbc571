"""Quorums over HTTP: make one, list them, read one, close one (D7)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import fields, parsing
from jobs.api.describing import ref, text, told, whole
from jobs.api.security import caller
from jobs.api.shapes import page
from jobs.api.views import answer
from jobs.errors import Invalid
from jobs.services.keys import Permission
from lanes import selectors, words
from lanes.api import shapes
from lanes.api.acting import OfLanes, OfQuorum, actor, for_quorum
from lanes.services import quorums

_FIELDS = {"name": text("Once in its workspace", most=words.NAME_LIMIT),
           "title": text("For people", most=words.TITLE_LIMIT)}
_LIST = {"closed": text("`true`: the closed ones, `false`: the others", among=("true", "false")),
         "limit": whole(1, selectors.MOST, default=selectors.LIMIT), "cursor": text("As `next_cursor` said")}
_REASON = {"reason": text("Why", most=words.REASON_LIMIT)}
_NONE = {404: "quorum_not_found"}


class Quorums(OfLanes):
    """`/quorums`."""

    permissions = {"POST": Permission.LANES, "GET": Permission.LANES}

    @told({201: ref("Quorum")}, body=_FIELDS, needed=("name",), example={"name": "search-rewrite"},
          refuses={403: "role_required", 404: "workspace_not_found", 409: "quorum_exists"})
    def post(self, request: Request) -> Response:
        """Make one in the caller's workspace, for good; for conductors (D7, D8)."""
        body = parsing.body(request, _FIELDS)
        made = quorums.create(caller(request).place, fields.text(body, "name"), fields.text(body, "title", default=""),
                              by=actor(request))
        return answer(shapes.quorum(made), 201, Location=f"{request.path}/{made.pk}")

    @told({200: ref("Quorums")}, query=_LIST, refuses={503: "too_slow"})
    def get(self, request: Request) -> Response:
        """Those of the workspace, newest first; none for whoever has no grant there (D12)."""
        said = parsing.query(request, *_LIST)
        if said.get("closed", "true") not in ("true", "false"):
            raise Invalid("must be true or false", field="closed", code="invalid_closed")
        closed = said["closed"] == "true" if "closed" in said else None
        found = quorums.listing(
            by=actor(request), workspace_id=caller(request).place.pk, closed=closed, cursor=said.get("cursor"),
            limit=fields.whole(said, "limit", selectors.LIMIT, 1, selectors.MOST))
        return answer(page("quorums", found, [shapes.quorum(row) for row in found.items]))


class Quorum(OfQuorum):
    """`/quorums/{id}`."""

    permissions = {"GET": Permission.LANES}

    @told({200: ref("Quorum")}, refuses=_NONE)
    def get(self, request: Request, name: str) -> Response:
        """Read one."""
        parsing.query(request)
        return answer(shapes.quorum(quorums.get(name, by=for_quorum(request, name))))


class Close(OfQuorum):
    """`/quorums/{id}/close`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("Quorum")}, body=_REASON, bodiless=True,
          refuses={**_NONE, 403: "role_required", 409: "quorum_closed"})
    def post(self, request: Request, name: str) -> Response:
        """Take no new lanes; those that there are go on. For conductors."""
        body = parsing.body(request, _REASON, optional=True)
        closed = quorums.close(name, by=for_quorum(request, name), reason=fields.text(body, "reason", default=""))
        return answer(shapes.quorum(closed))
