"""Jobs as tools: create and read; claim, extend, complete and release (D1 to D5, D14, D15).

A claim is the API's: whoever waits stands in one line with runners over HTTP, and gives back what comes too late.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from jobs import selectors
from jobs.api import assignments, fields, jobs, parsing, runtime, shapes
from jobs.api.describing import boolean, or_null, text
from jobs.api.holding import Brought
from jobs.api.security import Principal, enqueued
from jobs.errors import Invalid
from jobs.services import claiming, intake, runners
from jobs.services.assignments import look_after
from jobs.services.keys import Permission
from jobs.worker import handed_in
from lanes.actors import of_key
from lanes.api.jobs import ENDPOINT as OF_LANE
from lanes.mcp.tools import Body, lacking, tenant_of, tool
from lanes.services import lane_jobs

_TENANT = {"tenant_subject": or_null(text("The tenant that it is about; by default the key's own", most=255))}
_HELD = {"assignment_id": text("As job_claim told it")}
_COMPLETES: Final = assignments.Complete.post.told.body  # type: ignore[attr-defined]
_FAILS: Final = assignments.Fail.post.told.body  # type: ignore[attr-defined]
_RELEASES: Final = assignments.Release.post.told.body  # type: ignore[attr-defined]
_EXTENDS: Final = {name: assignments.Extend.post.told.body[name] for name in assignments.REPORTS}  # type: ignore[attr-defined]
_ENDS: Final = ("completed", "failed")


@tool("Create a job", Permission.ENQUEUE, {
    **jobs.FIELDS, "lane": or_null(text("The id of a lane that it shall belong to; that is for conductors"))}, "type")
def job_create(who: Principal, body: Body) -> Any:
    """Create one job. It is queued; nobody is assigned: whoever may claims it.

    `type` and `input` are as the site's catalogue of definitions says. Give an `idempotency_key` (or a `job_id`) so
    that saying the same again makes no second job: the answer then has `repeated: true`. All spans are in seconds.
    """
    named, lane = tenant_of(body), body.pop("lane", None)
    if lane is not None and not who.may(Permission.LANES):
        raise lacking(Permission.LANES)
    asked = jobs.drafted(body, who, named, body.get("idempotency_key"))
    with parsing.beneath("input"):
        done = (intake.enqueue_many([asked], door=who.door(jobs.ENDPOINT))[0] if lane is None else
                lane_jobs.enqueue(lane, asked, by=of_key(who.key), door=who.door(OF_LANE)))
    told = shapes.summary(enqueued(who, named, [done.id])[done.id])
    return {**told, "repeated": done.repeated, "steered": done.steered, "warnings": list(done.warnings)}


@tool("Read a job", Permission.READ, {
    "id": text("The id of the job, or the job_id that its creator gave it"),
    "include_input": boolean("With what it was given, which may be long", default=False), **_TENANT}, "id", reads=True)
def job_get(who: Principal, body: Body) -> Any:
    """Read one job: its state, its progress, and once it has ended its `result_envelope`."""
    whole = fields.boolean(body, "include_input", False)
    row = selectors.job(who.scope(tenant_of(body)), fields.text(body, "id"))
    look_after(row)
    return shapes.job(row, with_input=whole)


@tool("Claim jobs", Permission.CLAIM, runtime.FIELDS)
def job_claim(who: Principal, body: Body) -> Any:
    """Claim up to `slots` jobs; each is yours alone until its lease ends.

    Nothing to claim is an empty list, never an error. Each assignment has an `assignment_id` for all that follows, the
    job with its `input`, and `lease_expires_at`: say job_extend every `heartbeat_after_s` seconds, or the job goes to
    somebody else. What you change in the world outside carry out under `job.idempotency_key`, which stays the same when
    the job is claimed again. `wait_seconds` waits for the first job. Give a `request_id` of your own and say the claim
    again with it where its answer was lost.
    """
    seconds = fields.wait_seconds(body)
    wish = runtime.wished(who.key, body)
    found, more = claiming.take(wish)
    seconds = 0 if found else claiming.longest_s(who.key, seconds)
    if seconds:
        return runtime.Waits(wish, seconds)
    [told] = runtime.told_of(who.key, [found])
    return Brought({"assignments": told, "again": more}, partial(claiming.give_back, wish, found))


@tool("Keep a job", Permission.CLAIM, {**_HELD, **_EXTENDS}, "assignment_id")
def job_extend(who: Principal, body: Body) -> Any:
    """Heartbeat: prolong the lease of a job that you hold, and report checkpoint and progress.

    The answer says what there is to hear: `commands`, and `abort` where you are asked to stop. Say it again after
    `heartbeat_after_s` seconds.
    """
    name = fields.text(body, "assignment_id")
    return shapes.extended(assignments.beat(who.key, name, _rest(body), _EXTENDS))


@tool("Complete or fail a job", Permission.CLAIM, {
    **_HELD, "outcome": {**text("How it ended", among=_ENDS), "default": "completed"}, **_COMPLETES, **_FAILS},
      "assignment_id", repeats=True, ends=True)
def job_complete(who: Principal, body: Body) -> Any:
    """End a job that you hold: `completed` with its `artifact`, or `failed` with a `reason_code`.

    The same outcome said again changes nothing and is answered `repeated: true`; any other word on a job that has ended
    is refused. A failure that is `retryable` is tried again by the job's own policy; `cost_usd` is in US dollars.
    """
    key, name, rest = who.key, fields.text(body, "assignment_id"), _rest(body)
    outcome = fields.text(rest, "outcome", default=_ENDS[0])
    rest.pop("outcome", None)
    if outcome not in _ENDS:
        raise Invalid(f"must be one of {', '.join(_ENDS)}", field="outcome", code="invalid_outcome")
    if outcome == "failed":
        return shapes.settled(runners.fail(key, name, *assignments.failure(key, name, rest)))
    parsing.refuse_unknown(rest, _COMPLETES, noun="field")
    held = selectors.assignment(key.pk, name)
    assignments.finished(key, held, rest)
    with parsing.beneath("artifact"):
        return shapes.settled(handed_in.hand_in(key, held, rest.get("artifact")))


@tool("Give a job back", Permission.CLAIM, {**_HELD, **_RELEASES}, "assignment_id", repeats=True)
def job_release(who: Principal, body: Body) -> Any:
    """Give a job back to the queue, for anybody to claim: now, after `delay_s` seconds, or from `not_before` on.

    Its attempts are kept, and no failure is counted.
    """
    delay_s, not_before = assignments.until(_rest(body))
    end = runners.release(who.key, fields.text(body, "assignment_id"), delay_s=delay_s, not_before=not_before)
    return shapes.settled(end)


def _rest(body: Body) -> Body:
    return {name: value for name, value in body.items() if name not in _HELD}
