"""Throttles over the API: caps and pauses of the caller's workspace (C9). The whole site's are its operators'."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import clock
from jobs.api import fields, parsing
from jobs.api.describing import boolean, moment, number, or_null, ref, text, told, whole
from jobs.api.security import caller, whole_workspace
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.errors import Invalid
from jobs.models import Throttle
from jobs.services import tenancy, throttles
from jobs.services.keys import Permission
from jobs.services.throttles import ThrottleNotFound, Wanted

_FIELDS = {
    "most": or_null(whole(1, throttles.MOST, "Most of its jobs at once; null: no cap")),
    "paused": boolean("None of its jobs begins", default=False), "reason": or_null(text("Why it is paused", most=512)),
    "for_s": or_null(number("The pause ends after so long")), "until": or_null(moment("Or it ends then"))}
_ONE = {400: "unknown_throttle_kind", 404: "throttle_not_found not_found"}


def shape(row: Throttle) -> dict[str, Any]:
    """A throttle as callers see it; a pause whose end has come is none."""
    paused = throttles.paused(row, clock.now())
    return {
        "kind": row.kind, "name": row.name or (row.tenant.subject if row.tenant else None), "most": row.most,
        "used": None if row.most is None else throttles.used_of(row)[0],
        "paused": paused, "paused_at": jsonable(row.paused_at) if paused else None,
        "until": jsonable(row.paused_until) if paused else None, "paused_by": row.paused_by if paused else None,
        "reason": row.pause_reason if paused else None, "updated_at": jsonable(row.updated_at),
    }


def _named(kind: str, name: str) -> str:
    """The name in a path. What is no subject at all reads like a tenant that is not there. Raises NotFound."""
    if kind == "tenant":
        try:
            tenancy.check_subject(name)
        except Invalid:
            raise tenancy.no_such_tenant() from None
    return name


class Throttles(View):
    """`/throttles`."""

    permissions = {"GET": Permission.THROTTLE}

    @told({200: ref("Throttles")}, tenant=False)
    def get(self, request: Request) -> Response:
        """All of the workspace, at most 1,000."""
        parsing.query(request)
        return answer({"throttles": [shape(row) for row in throttles.listed(whole_workspace(request))]})


class ThrottleOf(View):
    """`/throttles/{kind}/{name}`; of the kind `tenant` the name is its subject."""

    permissions = {"GET": Permission.THROTTLE, "PUT": Permission.THROTTLE, "DELETE": Permission.THROTTLE}
    # What is let go comes back before the answer.
    waits = ("PUT", "DELETE")

    @told({200: ref("Throttle")}, tenant=False, refuses=_ONE)
    def get(self, request: Request, kind: str, name: str) -> Response:
        """One. Raises ThrottleNotFound."""
        parsing.query(request)
        place = whole_workspace(request)
        found = throttles.find(kind, _named(kind, name), workspace=place)
        if found is None:
            raise ThrottleNotFound(field="name")
        return answer(shape(found))

    @told({200: ref("Throttle")}, body=_FIELDS, tenant=False, example={"most": 5}, refuses={
        **_ONE, 400: "unknown_throttle_kind unknown_queue unknown_worker_group unknown_type throttle_says_nothing"
                     " throttle_not_paused unknown_parameter repeated_parameter"})
    def put(self, request: Request, kind: str, name: str) -> Response:
        """Say anew all of it: `most`, and `paused` with its `reason` and, if it ends by itself, `for_s` or `until`."""
        parsing.query(request)
        place, body = whole_workspace(request), parsing.body(request, _FIELDS)
        wanted = Wanted(
            body.get("most"), fields.boolean(body, "paused", False), fields.text(body, "reason", default=""),
            fields.moment(body, "until", "invalid_until"), fields.seconds(body, "for_s", "invalid_for_s"))
        return answer(shape(throttles.put(kind, _named(kind, name), wanted, by=caller(request).by, workspace=place)))

    @told({204: {}}, tenant=False, refuses=_ONE)
    def delete(self, request: Request, kind: str, name: str) -> Response:
        """Hold it back no more."""
        parsing.query(request)
        place = whole_workspace(request)
        throttles.remove(kind, _named(kind, name), by=caller(request).by, workspace=place)
        return answer(None, 204)
