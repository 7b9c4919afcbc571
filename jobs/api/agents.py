"""The door of agents' clients, in their own shape: camelCase in, `{ok, job, async}` out (A31, A53).

Their spelling of `canceled` is a setting's (E1). What such a request means is `services.agents`'s business.
"""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints
from jobs.api import parsing, shapes
from jobs.api.describing import anything, listed, or_null, ref, text, told, whole
from jobs.api.security import caller, enqueued, named_tenant
from jobs.api.views import View, answer
from jobs.conf import conf
from jobs.services import agents
from jobs.services.intake import Enqueued
from jobs.services.keys import Permission

ENDPOINT = "POST /api/v1/agents/{id}/jobs"
_OPTIONS = {
    "jobId": or_null(text(most=200)), "lane": or_null(text("The queue")), "maxAttempts": or_null(whole(1, 8)),
    "sessionKey": or_null(text(most=200)), "singletonMode": or_null(text()), "singleton": anything("`key` and `mode`"),
    "callbackUrl": or_null(text("Who is told", most=2_048)),
    "callbackEvents": or_null(listed(text(), "Of what; by default of the ends"))}
# Ours, and how their clients spell it.
NAMES = {"type": "kind", "queue": "lane", "job_id": "jobId", "max_attempts": "maxAttempts",
         "session_key": "sessionKey", "callback_url": "callbackUrl",
         "callback_events": "callbackEvents"}
_SPELLED = ("status", "state", "outcome")


class AgentJobs(View):
    """`/agents/{id}/jobs`."""

    permissions = {"POST": Permission.ENQUEUE}

    @told({202: ref("AgentsJob"), 200: ref("AgentsJob")}, headers=("Idempotency-Key",), open_body=True,
          body={"payload": anything("`kind`, and what it needs; without it the rest of the body is it"), **_OPTIONS},
          example={"payload": {"kind": "echo"}, "lane": "collect"},
          refuses={400: "invalid_agent invalid_kind unknown_queue unknown_singleton_mode missing_session_key"
                        " session_key_mismatch invalid_input invalid_idempotency_key max_cost_usd_exceeds_cap"
                        " retry_policy_exceeds_cap",
                   403: "definition_disabled origin_forbidden tenant_archived callbacks_disabled grant_required",
                   404: "job_not_found", 409: "tenant_deleting key_mismatch",
                   422: "unknown_job_type unregistered_version idempotency_key_reused",
                   429: "queue_saturated"})
    def post(self, request: Request, agent: str) -> Response:
        """Enqueue: 202 for a new job, 200 for one that an earlier request made, unchanged (A18, A53, E6).

        Without `payload` the whole body is it, but for the fields that say something about the job.
        """
        body = parsing.free_body(request)
        if "payload" in body:
            parsing.refuse_unknown(body, ("payload", *_OPTIONS))
        payload = body.get("payload", {name: value for name, value in body.items() if name not in _OPTIONS})
        actor, named = caller(request), named_tenant(request)
        with parsing.renamed(NAMES), parsing.beneath("payload" if "payload" in body else ""):
            done = agents.enqueue(
                agent, payload, max_attempts=body.get("maxAttempts"), sent=body, door=actor.door(ENDPOINT),
                queue=body.get("lane"), job_id=body.get("jobId"), workspace=actor.workspace,
                tenant=actor.subject(named), callback_url=body.get("callbackUrl"),
                callback_events=body.get("callbackEvents"),
                idempotency_key=request._request.META.get("HTTP_IDEMPOTENCY_KEY"),
                **agents.singleton(body.get("singletonMode"), body.get("sessionKey"), body.get("singleton")))
        failpoints.at("api.enqueued")
        told = shapes.summary(enqueued(actor, named, [done.id])[done.id])
        root = request.path.rsplit("/agents/", 1)[0]
        return answer(spelled(_shaped(told, done, root)), 200 if done.repeated else 202,
                      Location=f"{root}/jobs/{done.id}")


def _shaped(job: dict[str, Any], done: Enqueued, root: str) -> dict[str, Any]:
    """The answer of A31: the job, and where it can be followed."""
    here = f"{root}/jobs/{done.id}"
    return {
        "ok": True, "job": job, "repeated": done.repeated, "steered": done.steered,
        "warnings": list(done.warnings),
        "async": {"jobId": job["job_id"] or done.id, "stream": f"jobs/{done.id}",
                  "events": {"job": f"{here}/events", "receipt": f"{root}/events"}, "status": here}}


def spelled(told: Any) -> Any:
    """An answer of the agents' endpoints: `canceled` with one l where the site says so (E1)."""
    if not conf().CANCELED_WITH_ONE_L:
        return told
    if isinstance(told, dict):
        return {name: "canceled" if name in _SPELLED and value == "cancelled" else
                value if name in ("artifact", "input") else spelled(value) for name, value in told.items()}
    return told
