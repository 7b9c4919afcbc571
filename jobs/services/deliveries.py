"""Deliveries: sending one, its log, and sending it again (E11, case-I02, case-I03).

A receiver may hear the same thing twice and always under the same id: whoever dies between the answer and its settling
sends again. What is told is read when it is sent, so that what was redacted or erased meanwhile is told to nobody.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import signing as cookies
from django.db.models import QuerySet

from jobs import clock, codecs, failpoints, publish, selectors
from jobs.callbacks import Endpoint, group
from jobs.clock import jsonable
from jobs.conf import callback_policy, conf
from jobs.errors import Conflict, Invalid, JobError, NotFound, Refused
from jobs.ids import uuid7
from jobs.models import Artifact, Attempt, DeadLetter, Delivery, DeliveryTry, Job
from jobs.outcomes import final_status
from jobs.redaction import whole
from jobs.services import callbacks, dead_letters, signing
from jobs.states import State, status
from jobs.store import calling
from jobs.store.calling import New, Told
from jobs.store.sql import joining

if TYPE_CHECKING:
    from jobs.services.sending import Answer

log = logging.getLogger("jobs.callbacks")
STATES = ("pending", "delivered", "failed", "dropped")
# A longer artifact is fetched by whoever wants it.
MOST_ARTIFACT_BYTES = 64 * 1024
LONGEST_RETRY_AFTER_S = 3_600
# The same request would be answered the same.
FINAL = frozenset({"gone", "address_refused"})


class DeliveryNotFound(NotFound):
    """There is no such delivery, or it is not yours."""

    code = "delivery_not_found"


class DeliveryPending(Conflict):
    """It is being sent: there is nothing to repeat yet."""

    code = "delivery_pending"


class DeliveryRedacted(Conflict):
    """What it told of was redacted or erased, and is told to nobody any more."""

    code = "delivery_redacted"


# --- sending -------------------------------------------------------------------------------------------------------


def deliver(delivery_id: str, sender: str) -> dict[str, str | int | None]:
    """Send it once and keep what came of it; the artifact of its sender. Raises JobError where it was not delivered."""
    # Only where callbacks are sent is there an HTTP client for certain: the extra `callbacks`.
    from jobs.services import sending

    row = Delivery.objects.filter(pk=delivery_id, sender_id=sender).first()
    job = None if row is None else Job.objects.select_related("tenant").filter(pk=row.job_id).first()
    if row is None or job is None:
        return {"dropped": "erased"}
    if not job.input or (job.callback_url is None and not row.site):
        calling.dropped(delivery_id, "redacted")
        return {"dropped": "redacted"}
    target = _target(row, job)
    body = codecs.canonical(told(row, job)).encode()
    headers = _headers(row, target, body)
    # Nobody keeps a connection while it waits for strangers.
    publish.give_back()
    answer = sending.post(target, body, headers, callback_policy())
    failpoints.at("delivery.sent")
    _keep(row, target, answer)
    if answer.code is not None:
        raise JobError(answer.code, _words(answer), retryable=answer.code not in FINAL)
    return {"http_status": answer.status, "ms": answer.ms}


def _target(row: Delivery, job: Job) -> Endpoint:
    try:
        return callbacks.target_of(None if row.site else job.callback_url)
    except Invalid as error:
        calling.tried(str(row.pk), str(row.sender_id), None, 0, "address_refused", None)
        raise JobError("address_refused", error.message, retryable=False) from None


def _headers(row: Delivery, target: Endpoint, body: bytes) -> dict[str, str]:
    try:
        signed = signing.headers(row.tenant_id, row.workspace_id, str(row.pk), int(clock.now().timestamp()), body)
    except signing.Unreadable:
        calling.tried(str(row.pk), str(row.sender_id), None, 0, "secret_unreadable", None)
        raise JobError("secret_unreadable", "A secret is sealed under a SECRET_KEY that this site does not have; name "
                                            "it in SECRET_KEY_FALLBACKS.") from None
    told = {"Content-Type": "application/json", "User-Agent": "Jobsite-Callbacks/1", **signed}
    token = (conf().CALLBACK or {}).get("token")
    # For the configured origin alone: an address of a caller's never sees it, whatever its host.
    if row.site and token:
        told["Authorization"] = f"Bearer {token}"
    return told


def _keep(row: Delivery, target: Endpoint, answer: Answer) -> None:
    calling.tried(str(row.pk), str(row.sender_id), answer.status, answer.ms, answer.code, answer.text)
    if answer.code is None:
        calling.answered(group(target.host))
    elif answer.blames_host:
        calling.failed(group(target.host), min(answer.retry_after_s, LONGEST_RETRY_AFTER_S))


def _words(answer: Answer) -> str:
    said = "no answer" if answer.status is None else f"HTTP {answer.status}"
    return f"{answer.code.replace('_', ' ') if answer.code else 'delivered'}: {said} after {answer.ms} ms"


def told(row: Delivery, job: Job) -> dict[str, Any]:
    """What the receiver reads. The facts are those of the event; payloads as they are now, secrets by name left out."""
    return {
        "id": str(row.pk), "type": f"job.{row.event}", "timestamp": jsonable(row.at),
        "data": {
            "id": str(job.pk), "job_id": job.external_id, "type": job.type, "version": job.version,
            "tenant_subject": job.tenant.subject, "status": status(row.job_state), "state": row.job_state,
            "reason": row.reason, "revision": row.revision, "chain": row.chain,
            "result_envelope": None if row.event == "dispatched" else _envelope(row, job)}}


def _envelope(row: Delivery, job: Job) -> dict[str, Any]:
    """The one result of a chain that has ended (C2)."""
    made: dict[str, Any] = {"outcome": status(row.job_state), "ended_at": jsonable(row.at)}
    if row.job_state == State.COMPLETED:
        text = Artifact.objects.filter(job_id=job.pk).values_list("value", flat=True).first()
        if text is not None and len(text.encode()) > MOST_ARTIFACT_BYTES:
            return made | {"artifact": None, "artifact_path": f"/api/v1/jobs/{job.pk}/artifact"}
        return made | {"artifact": whole(codecs.stored(text))}
    last = Attempt.objects.filter(job_id=job.pk, chain=row.chain, outcome__in=("failed", "lapsed")).order_by("-number")
    failure = last.first() if row.job_state == State.FAILED else None
    code = failure.reason_code if failure else row.reason
    word = final_status(row.job_state, code)
    return made | {"error": {"reason_code": code, "message": failure.message if failure else None},
                   "result_status": None if word is None else word.value}


# --- again ---------------------------------------------------------------------------------------------------------


def replay(delivery_id: uuid.UUID, *, by: str) -> Delivery:
    """Send an ended delivery again, under the same id and to the address as the job has it.

    Raises DeliveryNotFound, DeliveryPending, DeliveryRedacted, and Refused callbacks_disabled.
    """
    if not conf().callbacks:
        raise Refused("This site sends no callbacks: JOBS['CALLBACKS'] is off.", code="callbacks_disabled")
    with joining(savepoint=True):
        row = _found(Delivery.objects.filter(pk=delivery_id))
        job = Job.objects.filter(pk=row.job_id).first()
        if job is None or not job.input or (job.callback_url is None and not row.site):
            raise DeliveryRedacted()
        # The sender first, as whoever moves it locks it before the delivery.
        letter = DeadLetter.objects.filter(job_id=row.sender_id, resolved_at=None).first()
        if letter is not None:
            dead_letters.discard(letter, by=by, reason="replayed")
        sender = str(uuid7())
        if not calling.replayed(str(row.pk), sender, str(row.sender_id)):
            raise DeliveryPending()
        facts = Told(str(job.pk), row.workspace_id, row.tenant_id, row.chain, row.revision, row.job_state, row.reason,
                     job.callback_url, row.at)
        callbacks.send([New(str(row.pk), sender, row.event, facts, row.host, row.site)])
    log.info("callback %s is sent again by %s", row.pk, by)
    row.refresh_from_db()
    return row


def _found(rows: QuerySet[Delivery]) -> Delivery:
    found = rows.first()
    if found is None:
        raise DeliveryNotFound()
    return found


# --- reading -------------------------------------------------------------------------------------------------------


def of_job(job_id: Any, limit: int = 100) -> list[Delivery]:
    """The deliveries of a job, the oldest first."""
    return list(Delivery.objects.filter(job_id=job_id).order_by("pk")[:limit])


def tries(rows: Iterable[Delivery], limit: int = 200) -> dict[uuid.UUID, list[DeliveryTry]]:
    """The log of each, in order; of very long ones together the latest."""
    found: dict[uuid.UUID, list[DeliveryTry]] = {row.pk: [] for row in rows}
    latest = DeliveryTry.objects.filter(delivery_id__in=list(found)).order_by("-pk")[:limit] if found else []
    for one in reversed(list(latest)):
        found[one.delivery_id].append(one)
    return found


def one(seen: selectors.Scope, name: str) -> Delivery:
    """One of a tenant's. Raises DeliveryNotFound, alike for unknown and foreign ones."""
    try:
        pk = uuid.UUID(name)
    except ValueError:
        raise DeliveryNotFound() from None
    return _found(Delivery.objects.filter(pk=pk, workspace_id=seen.workspace_id, tenant_id=seen.tenant_id or 0))


def page(seen: selectors.Scope, state: str | None, *, limit: int, cursor: str | None = None) -> selectors.Page:
    """A tenant's, the newest first. Raises Invalid invalid_status and invalid_cursor, TenantNotFound."""
    if state is not None and state not in STATES:
        raise Invalid(f"is one of {', '.join(STATES)}", field="status", code="invalid_status")
    found = Delivery.objects.filter(tenant_id=selectors.known(seen).tenant_id or 0, workspace_id=seen.workspace_id)
    if state is not None:
        found = found.filter(state=state)
    signer = cookies.Signer(key=settings.SECRET_KEY, salt=f"jobs.deliveries:{tuple(seen)}:{state}")
    if cursor is not None:
        try:
            found = found.filter(pk__lt=uuid.UUID(signer.unsign(cursor)))
        except (cookies.BadSignature, ValueError):
            raise Invalid("This cursor does not belong to this list.", field="cursor", code="invalid_cursor") from None
    items = list(found.order_by("-pk")[: limit + 1])
    more = len(items) > limit
    return selectors.Page(items[:limit], signer.sign(items[limit - 1].pk.hex) if more else None)
