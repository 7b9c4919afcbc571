"""Jobs: enqueue one, list them, read one."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from jobs import failpoints, selectors, states
from jobs.api import fields, parsing, shapes
from jobs.api.describing import Schema, anything, listed, moment, number, or_null, ref, text, thing, told, whole
from jobs.api.forms import STATES, STATUSES
from jobs.api.security import Principal, caller, enqueued, named_tenant, tenant_scope
from jobs.api.views import View, answer
from jobs.errors import Invalid
from jobs.retry import MAX_ATTEMPTS
from jobs.selectors import Filter
from jobs.services import assignments, draft, intake
from jobs.services.draft import Options
from jobs.services.keys import Permission
from jobs.states import SingletonMode

ENDPOINT = "POST /api/v1/jobs"
# A57; a page of B40 has 100 at most, and its callers ask for no more.
MOST = 500
def _named(means: str) -> Schema:
    return or_null(text(means, most=200, pattern=r"^[\x20-\x7e]+$"))


_MODES = text(among=[mode.value for mode in SingletonMode])
_MODE = {"anyOf": [_MODES, thing({"key": _named("The session key"), "mode": _MODES}, optional=("key", "mode")),
                   {"type": "null"}],
         "description": "What becomes of active jobs of this session key"}
# Handed on as they are: intake says what each may be.
_AS_SENT = {
    "queue": or_null(text("By default the definition's")), "priority": or_null(whole(-100, 100, "Higher goes first")),
    "agent": or_null(text("Which agent it is for, where the site routes by agents", most=64)),
    "version": or_null(whole(1, means="By default the current one")),
    "job_id": or_null(text("The caller's own id: said again, its job comes back unchanged", most=200,
                           pattern=r"^[A-Za-z0-9._:~-]+$")),
    "session_key": _named("The conversation that it belongs to"), "singleton": _MODE,
    "exclusive_group": _named("Of the jobs of one group a limited number runs at once"),
    "target": or_null(text("What the job is about: a newer one supersedes older ones", most=512)),
    "delay_s": or_null(number("Seconds until it may be claimed", least=0)),
    "deadline_s": or_null(number("Seconds that it may take, from the first claim on", least=0)),
    "max_cost_usd": anything("Most that it may cost, in US dollars, as text or a number"),
    "callback_url": or_null(text("Who is told of it", most=2_048)),
    "callback_events": or_null(listed(text(), "Of what; by default of the ends")),
}
_RETRY = or_null(thing({
    "max_attempts": whole(1, MAX_ATTEMPTS, "Counted starts, the first one too"),
    "base_delay_s": number("Seconds before the second attempt; then ever longer", least=0),
    "max_delay_s": number("Most seconds between attempts", least=0),
    "retry_on": or_null(listed(text(), "Only after failures with these reason codes", most=fields.MAX_CODES)),
    "deadline_s": or_null(number("Seconds after the first start in which it is tried again", least=0)),
    "deadline_at": or_null(moment("No attempt after this moment"))}, "Over the site's policy; null: never",
    optional=("max_attempts", "base_delay_s", "max_delay_s", "retry_on", "deadline_s",
              "deadline_at")))
FIELDS = {
    "type": text("What is to run, by the catalogue", most=64), "input": anything("By its definition's schema"),
    **_AS_SENT,
    "idempotency_key": _named("Names this request: said again with the same content, it makes no second job"),
    "available_at": or_null(moment("Not claimed before this moment")),
    "deadline_at": or_null(moment("Fails if it has not ended by then")), "retry": _RETRY,
    "tenant_subject": or_null(text("The tenant whose job it is; by default the key's own", most=255))}
_WHERE = sorted({*STATUSES, *STATES})
_LIST = {"status": text("A status or a state", among=_WHERE), "state": text("The same", among=_WHERE), "type": text(),
         "queue": text(), "limit": whole(1, MOST, default=50), "cursor": text("As `next_cursor` said")}
_ONE = {"include": text("Its input too", among=("input",))}
REFUSED = {
    400: "unknown_queue unknown_singleton_mode missing_session_key session_key_mismatch invalid_session_key"
         " invalid_input invalid_availability invalid_deadline invalid_retry_policy retry_policy_exceeds_cap"
         " max_cost_usd_exceeds_cap",
    403: "definition_disabled origin_forbidden tenant_archived callbacks_disabled grant_required", 404: "job_not_found",
    409: "tenant_deleting key_mismatch", 422: "unknown_job_type unregistered_version idempotency_key_reused",
    429: "queue_saturated"}


class Jobs(View):
    """`/jobs`."""

    permissions = {"POST": Permission.ENQUEUE, "GET": Permission.READ}

    @told({202: ref("Enqueued"), 200: ref("Enqueued")}, body=FIELDS, needed=("type",), headers=("Idempotency-Key",),
          refuses=REFUSED, example={"type": "document-summary", "input": {"text": "..."}, "priority": 5})
    def post(self, request: Request) -> Response:
        """Enqueue: 202 for a new job or a steer, 200 for what an earlier request made (A16, C3, E6)."""
        body = parsing.body(request, FIELDS)
        actor = caller(request)
        named = named_tenant(request, body.get("tenant_subject"))
        asked = drafted(body, actor, named, fields.idempotency_key(request, body))
        with parsing.beneath("input"):
            done = intake.enqueue_many([asked], door=actor.door(ENDPOINT))[0]
        failpoints.at("api.enqueued")
        # Without its result: who may enqueue may not therefore read what an earlier request brought.
        told = shapes.summary(enqueued(actor, named, [done.id])[done.id])
        return answer({**told, "repeated": done.repeated, "steered": done.steered, "warnings": list(done.warnings)},
                      200 if done.repeated else 202, Location=f"{request.path}/{done.id}")

    @told({200: ref("Jobs")}, query=_LIST, refuses={503: "too_slow"})
    def get(self, request: Request) -> Response:
        """List, newest first, without inputs (A57, B40)."""
        said = parsing.query(request, *_LIST)
        found = selectors.jobs(tenant_scope(request), _filter(said), limit=fields.whole(said, "limit", 50, 1, MOST),
                               cursor=said.get("cursor"))
        return answer(shapes.page("jobs", found, [shapes.summary(job) for job in found.items]))


class Job(View):
    """`/jobs/{id}`: our id or the caller's job_id."""

    permissions = {"GET": Permission.READ}

    @told({200: ref("JobInFull")}, query=_ONE, refuses={404: "job_not_found"})
    def get(self, request: Request, name: str) -> Response:
        """Read one; `?include=input` shows what it was given (B40). A lost one is looked after behind us (A56)."""
        said = parsing.query(request, *_ONE)
        if said.get("include", "input") != "input":
            raise Invalid("can include input", field="include", code="invalid_include")
        job = selectors.job(tenant_scope(request), name)
        assignments.look_after(job)
        return answer(shapes.job(job, with_input="include" in said), ETag=shapes.etag(job))


def drafted(body: dict[str, Any], actor: Principal, named: str | None, key: Any) -> draft.Request:
    """What a body asks for, under this key. Raises Invalid, and TenantNotFound where a key may not name it."""
    options = Options(
        **{name: body.get(name) for name in _AS_SENT}, workspace=actor.workspace, tenant=actor.subject(named),
        idempotency_key=key,
        available_at=fields.moment(body, "available_at", "invalid_available_at"),
        deadline_at=fields.moment(body, "deadline_at", "invalid_deadline_at"), retry=fields.retry(body))
    return draft.Request(fields.text(body, "type"), body.get("input", {}), options, _sent(body))


def _sent(body: dict[str, Any]) -> dict[str, Any]:
    """The request for its fingerprint: the key itself may be said in two places, so it is not part of it (E6)."""
    return {name: value for name, value in body.items() if name != "idempotency_key"}


def _filter(said: dict[str, str]) -> Filter:
    words = [(name, said[name]) for name in ("status", "state") if name in said]
    if len(words) > 1:
        raise Invalid("Say status or state, not both.", field="state", code="invalid_state")
    meant = states.states_of(words[0][1]) if words else ()
    if words and not meant:
        raise Invalid(f"There is no such {words[0][0]}.", field=words[0][0], code=f"invalid_{words[0][0]}")
    for name in ("type", "queue"):
        if not said.get(name, "x").isprintable():
            raise Invalid("must be printable", field=name, code=f"invalid_{name}")
    return Filter(meant, said.get("type"), said.get("queue"))
