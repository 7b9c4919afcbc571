"""Many jobs in one request: each as if it had been sent alone, in order, and each with an outcome of its own."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import errors, fields, parsing
from jobs.api.describing import boolean, listed, ref, thing, told
from jobs.api.jobs import ENDPOINT, FIELDS, drafted
from jobs.api.security import caller, named_tenant
from jobs.api.views import View, answer
from jobs.codecs import MAX_CONTAINERS
from jobs.conf import conf
from jobs.errors import Invalid, JobsError
from jobs.services import draft, intake
from jobs.services.intake import BATCH, Enqueued
from jobs.services.keys import Permission

_FIELDS = {
    "jobs": {**listed(thing(FIELDS, optional=[name for name in FIELDS if name != "type"]),
                      "Each as the body of `POST /jobs`", most=BATCH), "minItems": 1},
    "atomic": boolean("All or none", default=False)}
Outcome = Enqueued | JobsError


class BatchRefused(Invalid):
    """Nothing was enqueued, since some of the jobs were refused; `faults` names them."""

    code = "batch_refused"


class Batch(View):
    """`/jobs/batch`."""

    permissions = {"POST": Permission.ENQUEUE}

    @classmethod
    def longest(cls) -> int:
        """A setting's: a thousand jobs are longer than one."""
        return max(parsing.limit(), conf().BATCH_MAX_BYTES)

    @told({200: ref("Batch")}, body=_FIELDS, needed=("jobs",),
          refuses={400: "invalid_idempotency_key", 403: "grant_required", 404: "job_not_found", 422: "batch_refused"},
          example={"jobs": [{"type": "document-summary", "input": {"text": "..."}, "idempotency_key": "page-1"}]})
    def post(self, request: Request) -> Response:
        """Enqueue up to 1,000 jobs in one transaction: each is made, known already, or refused, as it would be alone.

        `atomic` makes all or none. A job in a batch has its key in `idempotency_key`; what was sent alone is known here
        and the other way round (C3, E6).
        """
        if "HTTP_IDEMPOTENCY_KEY" in request._request.META:
            raise Invalid("Each job of a batch has its own key, in its `idempotency_key`.", field="Idempotency-Key",
                          code="invalid_idempotency_key")
        body = parsing.body(request, _FIELDS, most=self.longest(), keys=MAX_CONTAINERS)
        asked = [_read(request, item) for item in _items(body)]
        atomic = fields.boolean(body, "atomic", False)
        if atomic and any(isinstance(one, JobsError) for one in asked):
            raise _refused(asked)
        good = [one for one in asked if isinstance(one, draft.Request)]
        done = iter(intake.enqueue_each(good, door=caller(request).door(ENDPOINT), atomic=atomic))
        ends = [next(done) if isinstance(one, draft.Request) else one for one in asked]
        if atomic and any(isinstance(end, JobsError) for end in ends):
            raise _refused(ends)
        failpoints.at("api.enqueued")
        return answer(_told(ends))


def _items(body: dict[str, Any]) -> list[Any]:
    said = body.get("jobs")
    if not isinstance(said, list) or not 1 <= len(said) <= BATCH:
        raise Invalid(f"must be a list of 1 to {BATCH} jobs", field="jobs", code="invalid_jobs")
    return said


def _read(request: Request, item: Any) -> draft.Request | JobsError:
    """One job of the batch, or why it is none."""
    try:
        if not isinstance(item, dict):
            raise Invalid("must be an object", field="", code="not_an_object")
        parsing.refuse_unknown(item, FIELDS)
        return drafted(item, caller(request), named_tenant(request, item.get("tenant_subject")),
                       item.get("idempotency_key"))
    except JobsError as error:
        return error


def _told(ends: list[Outcome]) -> dict[str, Any]:
    results = [_result(end) for end in ends]
    repeated = sum(result["status"] == 200 for result in results)
    refused = sum("problem" in result for result in results)
    return {"results": results, "enqueued": len(results) - repeated - refused, "repeated": repeated,
            "refused": refused}


def _result(end: Outcome) -> dict[str, Any]:
    if isinstance(end, Enqueued):
        return {"status": 200 if end.repeated else 202, "id": end.id, "repeated": end.repeated, "steered": end.steered,
                "warnings": list(end.warnings)}
    number, problem, _ = errors.refusal(end)
    return {"status": number, "problem": problem}


def _refused(ends: list[Any]) -> BatchRefused:
    """Every refusal of the batch at once, with the place of its job."""
    faults = [{"field": f"/jobs/{n}/{(end.field or '').removeprefix('/')}".rstrip("/"), "code": end.reason_code,
               "message": end.message} for n, end in enumerate(ends) if isinstance(end, JobsError)]
    return BatchRefused(field=faults[0]["field"], faults=faults[:parsing.MAX_FAULTS])
