"""The catalogue: what may be enqueued here, and by which rules (B5, B7, B10)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import parsing
from jobs.api.describing import ref, text, told
from jobs.api.security import caller
from jobs.api.views import View, answer
from jobs.clock import jsonable
from jobs.conf import conf, registry
from jobs.definition import SITE, Definition, Span
from jobs.errors import NotFound
from jobs.registry import nearest
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.schemas import Codec
from jobs.services.keys import Permission

_QUERY = {"type": text("One type alone")}


class Definitions(View):
    """`/definitions`."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("Definitions")}, query=_QUERY, refuses={404: "definition_not_found"}, tenant=False)
    def get(self, request: Request) -> Response:
        """Every `type@version` that is registered here, old versions too; `?type=` one type's."""
        wanted = parsing.query(request, *_QUERY).get("type")
        shown = [d for d in registry() if d.worker_group != SYSTEM]
        if wanted is not None:
            known = {d.type for d in shown}
            shown = [d for d in shown if d.type == wanted]
            if not shown:
                raise NotFound(f"There is no such job type{nearest(wanted, known)}", code="definition_not_found")
        return answer({"definitions": [definition(d, caller(request).origin) for d in shown]})


def definition(d: Definition, origin: str) -> dict[str, Any]:
    """One definition as a caller of this origin needs it. `max_ai_credits` tells, and limits nothing (B10)."""
    return {
        "type": d.type, "version": d.version, "current": registry().current(d.type) is d, "label": d.label,
        "description": d.description, "origins": sorted(d.origins), "queue": d.queue, "priority": d.priority,
        "worker_group": d.worker_group, "executor": "external" if d.executor == "external" else "in_process",
        "credential": d.credential, "enabled": d.enabled, "runs": d.runs,
        "enqueueable": d.enabled and origin in d.origins,
        "stages": [{"stage": name, "label": label} for name, label in d.stages.items()],
        "limits": {
            "max_input_bytes": d.max_input_bytes, "max_artifact_bytes": d.max_artifact_bytes,
            "max_ai_credits": d.max_ai_credits, "lease_s": _span(d.lease_s, conf().LEASE_S),
            "timeout_s": _span(d.timeout_s, conf().TIMEOUT_S), "max_duration_s": _span(d.max_duration_s, None),
            "duration_scope": d.duration_scope, "max_lapses": d.max_lapses, "max_claims": d.max_claims,
            "max_attempts_cap": d.max_attempts_cap},
        "retry": _policy(conf().RETRY if d.retry is SITE else d.retry),
        "input_schema": _schema(d.input), "artifact_schema": _schema(d.artifact),
    }


def _span(span: Any, own: float | None) -> Any:
    """Seconds; for a function of the input what it is never above, for a rule of the lease its name."""
    if isinstance(span, Span):
        return {"of": "input", "at_most": span.cap_s}
    if isinstance(span, str):
        return {"of": span}
    return own if span is None else span


def _policy(policy: Any) -> dict[str, Any] | None:
    if not isinstance(policy, RetryPolicy):
        return None
    return {"max_attempts": policy.max_attempts, "base_delay_s": policy.base_delay_s,
            "max_delay_s": policy.max_delay_s, "retry_on": None if policy.retry_on is None else list(policy.retry_on),
            "deadline_s": policy.deadline_s, "deadline_at": jsonable(policy.deadline_at)}


@lru_cache(maxsize=1024)
def _schema(codec: Codec[Any]) -> dict[str, Any]:
    return codec.json_schema()
