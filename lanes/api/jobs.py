"""The jobs of a lane over HTTP: which they are, one more that is there, one more that is made for it (D7)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import fields, parsing
from jobs.api.describing import ref, text, told, whole
from jobs.api.jobs import FIELDS, drafted
from jobs.api.security import caller, enqueued, named_tenant
from jobs.api.shapes import summary
from jobs.api.views import answer
from jobs.services.keys import Permission
from lanes import selectors
from lanes.api import shapes
from lanes.api.acting import OfLane, demand, for_lane
from lanes.services import lane_jobs

_LIST = {"before": text("Those older than this one, as `next_before` said"),
         "limit": whole(1, selectors.MOST, default=selectors.LIMIT)}
_ATTACH = {"job": text("The id of a job of the same workspace")}
