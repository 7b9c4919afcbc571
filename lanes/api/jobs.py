"""The jobs of a lane over HTTP: which they are, one more that is there, one more that is made for it (D7)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import fields, parsing
from jobs.api.describing import ref, text, told, whole
from jobs.api.jobs import FIELDS, REFUSED, drafted
from jobs.api.security import caller, enqueued, named_tenant
from jobs.api.shapes import summary
from jobs.api.views import answer
from jobs.services.keys import Permission
from lanes import selectors
from lanes.api import shapes
from lanes.api.acting import OfLane, demand, for_lane
from lanes.services import lane_jobs

ENDPOINT = "POST /api/v1/lanes/{id}/jobs"
_LIST = {"before": text("Those older than this one, as `next_before` said", most=36),
         "limit": whole(1, selectors.MOST, default=selectors.LIMIT)}
_ATTACH = {"job_id": text("The id of a job of the same workspace, as we gave it", most=36)}
_LANE = {403: "role_required", 404: "lane_not_found job_not_found", 409: "lane_ended job_in_other_lane"}


class LaneJobs(OfLane):
    """`/lanes/{id}/jobs`."""

    permissions = {"GET": Permission.LANES, "POST": Permission.LANES}

    @told({200: ref("LaneJobs")}, query=_LIST, refuses={404: "lane_not_found"})
    def get(self, request: Request, name: str) -> Response:
        """Its jobs, newest first; those that are gone too. Takes `read` beside."""
        said = parsing.query(request, *_LIST)
        demand(request, Permission.READ)
        limit = fields.whole(said, "limit", selectors.LIMIT, 1, selectors.MOST)
        found = lane_jobs.jobs(name, by=for_lane(request, name), before=said.get("before"), limit=limit + 1)
        more = str(found[limit - 1][0].job_id) if len(found) > limit else None
        return answer({"jobs": [shapes.job(*one) for one in found[:limit]], "next_before": more})

    @told({202: ref("Enqueued"), 200: ref("Enqueued")}, body=FIELDS, needed=("type",), headers=("Idempotency-Key",),
          example={"type": "document-summary", "input": {"text": "..."}},
          refuses={number: f"{_LANE.get(number, '')} {REFUSED.get(number, '')}" for number in _LANE | REFUSED})
    def post(self, request: Request, name: str) -> Response:
        """Enqueue a job as `POST /jobs` does and make it the lane's, both or neither; for conductors.

        Takes `enqueue` beside.
        """
        demand(request, Permission.ENQUEUE)
        body, who = parsing.body(request, FIELDS), caller(request)
        named = named_tenant(request, body.get("tenant_subject"))
        asked = drafted(body, who, named, fields.idempotency_key(request, body))
        with parsing.beneath("input"):
            done = lane_jobs.enqueue(name, asked, by=for_lane(request, name, makes=True), door=who.door(ENDPOINT))
        failpoints.at("api.enqueued")
        told = summary(enqueued(who, named, [done.id])[done.id])
        where = f"{request.path.partition('/lanes/')[0]}/jobs/{done.id}"
        return answer({**told, "repeated": done.repeated, "steered": done.steered, "warnings": list(done.warnings)},
                      200 if done.repeated else 202, Location=where)


class Attach(OfLane):
    """`/lanes/{id}/jobs/attach`."""

    permissions = {"POST": Permission.LANES}

    @told({200: ref("LaneJob")}, body=_ATTACH, needed=("job_id",), refuses=_LANE,
          example={"job_id": "0197c000-0000-7000-8000-000000000000"})
    def post(self, request: Request, name: str) -> Response:
        """Make a job that is there the lane's; for conductors. Takes `read` beside."""
        demand(request, Permission.READ)
        job_id = fields.text(parsing.body(request, _ATTACH), "job_id")
        new = lane_jobs.attach(name, job_id, by=for_lane(request, name))
        return answer({"lane": name.lower(), "job_id": job_id.lower(), "repeated": not new})
