"""Why a job does not run, as data with stable codes (DESIGN 7.1)."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import selectors
from jobs.api import parsing
from jobs.api.describing import ref, told
from jobs.api.security import tenant_scope
from jobs.api.views import View, answer
from jobs.services import explain
from jobs.services.blockers import Asked
from jobs.services.keys import Permission


class Explain(View):
    """`/jobs/{id}/explain`."""

    permissions = {"GET": Permission.READ}
    waits = ("GET", "HEAD")

    @told({200: ref("Explanation")}, refuses={404: "job_not_found", 503: "too_slow"})
    def get(self, request: Request, name: str) -> Response:
        """Every reason, the first one first; of what other tenants own it tells nothing."""
        parsing.query(request)
        scope = tenant_scope(request)
        job: Any = selectors.job(scope, name)
        asked = Asked(job, job.now, scope.tenant_id)
        return answer(explain.why(asked))
