"""What a runner over HTTP may do with its key: claim, fail, release, and what a completion needs (C31 to C38, E8).

The same verbs as a worker's (`assignments`, `settlement`), bound to the key that claimed: an assignment of another
key is not there. Settling again with the same words is a quiet yes, with other words a stale claim (E5).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.views.decorators.debug import sensitive_variables

from jobs import clock, codecs, selectors
from jobs.conf import conf, registry
from jobs.diagnostics import snapshot
from jobs.errors import Conflict, Invalid, JobsError, Refused, StaleFence
from jobs.models import Job, Key
from jobs.outcomes import Completed, Failed, Interrupted, Outcome, Released, ResultStatus, Stopped, storable
from jobs.registry import Definition, nearest
from jobs.routing import UNROUTED
from jobs.selectors import Assignment
from jobs.services import assignments, noted, overtime, owners, settlement, words
from jobs.states import State
from jobs.store.claim import Batch, Claimed, Claimer
from jobs.store.moves import Moved
from jobs.store.picking import Pair
from jobs.store.spoilt import Spoilt

MAX_SLOTS = 100
UNKNOWN_TYPE_US = 15_000_000
US = 1_000_000
# Turns go on from claim to claim of this process: a cursor of a request's own would always begin at the first tenant.
_cursors: dict[tuple[int, int | None], dict[Pair, int]] = {}
_spoilt = Spoilt()


class NotAsked(Conflict):
    """Nobody has asked this job to stop."""

    code = "no_abort_pending"


@dataclass(frozen=True, slots=True)
class Settled:
    """The end of an assignment: where its job stands now, and whether the same had been said before."""

    job_id: str
    state: State
    repeated: bool


def actor(key: Key) -> str:
    """The name under which a key's deeds stand in receipts; a prefix holds nothing to escape."""
    return f"key:{key.prefix}"


# --- claim ---------------------------------------------------------------------------------------------------------


def claim(key: Key, *, worker_groups: Sequence[str] | None = None, queues: Sequence[str] | None = None,
          slots: int = 1, wait_s: int = 0) -> Batch:
    """Claim up to `slots` jobs for this key, waiting up to `wait_s` for the first (C31). Durable.

    A longer wait than the workspace allows is cut, not refused. Raises Invalid (unknown group or queue) and Refused
    (a group that the key may not serve, or that is served in process).
    """
    claimer = _claimer(key, _groups(key, worker_groups), _queues(queues))
    longest = selectors.limit("claim_max_wait_s", key.workspace_id, key.tenant_id)
    until = clock.monotonic() + min(wait_s, selectors.CLAIM_MAX_WAIT_S if longest is None else longest)
    while True:
        batch = _registered(assignments.take(claimer, slots), claimer.by)
        left = until - clock.monotonic()
        if batch.jobs or left <= 0:
            return batch
        # Nothing is held while waiting: a hundred idle runners must not cost a hundred connections.
        connection.close()
        clock.sleep(min(left, conf().POLL_S))


def _claimer(key: Key, groups: Sequence[str], queues: Sequence[str]) -> Claimer:
    mine = (key.workspace_id, key.tenant_id)
    return Claimer(pairs=[(g, q) for g in groups for q in queues], by=actor(key), key_id=key.pk,
                   workspace_id=key.workspace_id, tenant_id=key.tenant_id, types=_types(), weights=conf().QUEUES,
                   strict=False, cursors=_cursors.setdefault(mine, {}), spoilt=_spoilt)


def _types() -> list[tuple[str, int]] | None:
    """Every type that may be started, if some may not; else no filter, because it costs the claim (B43, E7)."""
    known = list(registry())
    return None if all(d.runs for d in known) else [(d.type, d.version) for d in known if d.runs]


def _groups(key: Key, asked: Sequence[str] | None) -> list[str]:
    """The worker groups to claim from: what is asked for, within what the key and the site allow (E7)."""
    inside = set(registry().groups())
    outside = {*registry().groups(external=True), *(rule.worker_group for rule in conf().ROUTING),
               conf().UNKNOWN_AGENT_GROUP, *(key.worker_groups or ())} - inside - {UNROUTED}
    allowed = outside if key.worker_groups is None else outside & set(key.worker_groups)
    for group in asked or ():
        if group in inside or group == UNROUTED:
            raise Refused(f"The worker group {codecs.printable(group)!r} is served in process on this site.",
                          field="worker_groups", code="group_served_in_process")
        if key.worker_groups is not None and group not in key.worker_groups:
            raise Refused("This key may not serve this worker group.", field="worker_groups", code="group_forbidden")
        if group not in outside:
            raise Invalid(f"There is no such worker group{nearest(group, outside)}", field="worker_groups",
                          code="unknown_worker_group")
    return sorted(allowed) if asked is None else list(dict.fromkeys(asked))


def _queues(asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(conf().QUEUES)
    return list(dict.fromkeys(words.queue(queue, queue) for queue in asked))


def _registered(batch: Batch, by: str) -> Batch:
    """The batch without what may not begin: versions that this site does not know (E7), a chain whose duration is spent
    (E8), a job whose stored input no longer decodes (B21).

    The first are handed back, uncounted, where a live worker has them, and paused where nobody does. Runners publish no
    versions: what they serve is what the site registers, and a process that does resumes them (`Upkeep`).
    """
    ends: dict[str, Outcome] = {}
    strange: dict[str, str] = {}
    spoilt: dict[str, str] = {}
    known = registry()
    for job in batch.jobs:
        definition = known.find(job.type, job.version)
        if definition is None:
            ends[job.fence] = Interrupted("unregistered_type", UNKNOWN_TYPE_US)
            strange[job.fence] = f"{job.type}@{job.version}"
        elif job.max_duration_ms == 0:
            ends[job.fence] = overtime.SPENT
        elif (fault := _fault(definition, job.input)) is not None:
            spoilt[job.fence] = fault
    if not ends and not spoilt:
        return batch
    settlement.settle([settlement.Report(j.id, j.fence, ends[j.fence], strange.get(j.fence)) for j in batch.jobs
                       if j.fence in ends], by)
    for job in batch.jobs:
        if job.fence in spoilt:
            settlement.spoil(job.id, job.fence, spoilt[job.fence], by)
    return Batch([job for job in batch.jobs if job.fence not in ends and job.fence not in spoilt], batch.again)


def _fault(definition: Definition, text: str) -> str | None:
    try:
        definition.input.decode(text)
    except Invalid as error:
        return error.message
    return None


@sensitive_variables()
def credentials(key: Key, batch: Batch) -> tuple[Batch, dict[str, dict[str, Any]]]:
    """By attempt what its runner learns of the owner: the binding, and the secret where the definition shares it (E8).

    The batch comes back without jobs whose secret cannot be had; they are handed back, uncounted (B24).
    """
    owned = [(job, d.share_credential) for job in batch.jobs
             if (d := registry().find(job.type, job.version)) is not None and d.credential == owners.OWNER]
    told: dict[str, dict[str, Any]] = {}
    lost: list[Claimed] = []
    for job, shares in owned:
        under = owners.bound(job.fence)
        try:
            told[job.fence] = {"owner": under and {"owner": under.owner, "generation": under.generation},
                               **({"credential": owners.shared(job.fence, job.id)} if shares else {})}
        except owners.Unavailable:
            lost.append(job)
    if not lost:
        return batch, told
    settlement.settle([settlement.Report(job.id, job.fence, owners.unavailable(job.claims)) for job in lost],
                      actor(key))
    return Batch([job for job in batch.jobs if job not in lost], batch.again), told


def lease_until(job: Claimed) -> datetime:
    """Until when a claim is believed without a heartbeat."""
    return job.leased_at + _ms(job.lease_ms)


def deadline(job: Claimed) -> datetime | None:
    """When an attempt must have ended by the definition's timeout or duration, the earlier of both (E8)."""
    spans = [ms for ms in (job.timeout_ms, job.max_duration_ms) if ms is not None]
    return job.leased_at + _ms(min(spans)) if spans else None


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


# --- ends ----------------------------------------------------------------------------------------------------------


def claimed(held: Assignment) -> Claimed:
    """The job of an assignment as its claim answered it; the input as it is now."""
    job = Job.objects.get(pk=held.job_id)
    return Claimed(
        id=held.job_id, fence=held.id, type=job.type, version=job.version, input=job.input, claims=held.number,
        chain=job.chain, lease_ms=job.lease_ms, timeout_ms=job.timeout_ms, max_duration_ms=job.max_duration_ms,
        deadline_at=job.deadline_at, checkpoint=job.checkpoint, checkpoint_number=job.checkpoint_number,
        workspace_id=job.workspace_id, tenant_id=job.tenant_id, worker_group=job.worker_group, queue=job.queue,
        agent=job.agent, target_id=job.target_id, generation=job.generation,
        leased_us=clock.micros(held.bounds.leased_at) or 0)


def completed(held: Assignment, artifact: Any) -> Completed:
    """The outcome of an artifact in its codec's normal form. Raises Invalid (B8, B9)."""
    text = registry().exact(held.type, held.version).artifact.normal(artifact)
    return Completed(text, codecs.digest(text))


def fail(key: Key, name: str, outcome: Failed, diagnostic: dict[str, Any] | None = None) -> Settled:
    """Settle as failed; what that means for the job is the retry policy's word (C13 to C18). Durable.

    Raises NotFound, StaleFence, DurationExceeded, and Invalid invalid_diagnostic.
    """
    held = selectors.assignment(key.pk, name)
    if diagnostic is not None:
        noted.note(held, snapshot(diagnostic, beneath="diagnostic."))
    return settle(key, held, outcome)


def cancelled(key: Key, name: str) -> Settled:
    """Settle as cancelled: the runner has stopped as it was asked to (A35, E5, E8). Durable.

    Raises NotFound, StaleFence, and NotAsked: a runner that cannot go on releases or fails its job.
    """
    held = selectors.assignment(key.pk, name)
    # Once asked, asked until the end: what is seen here stays true for the write.
    beat = assignments.peek([held.id]).get(held.id)
    if beat is not None and beat.abort is None:
        raise NotAsked()
    return settle(key, held, Stopped())


def release(key: Key, name: str, *, delay_s: float | None = None, not_before: datetime | None = None) -> Settled:
    """Give a job back, claimable now, after a delay or from a moment on (C32). Durable.

    Raises NotFound, StaleFence, TooManyReleases, and Invalid invalid_release (both, past, too far, after the deadline).
    """
    held = selectors.assignment(key.pk, name)
    outcome = _released(delay_s, not_before)
    # A repeat of an earlier release may lie in the past by now.
    if held.live:
        _check_reach(held, outcome)
    return settle(key, held, outcome)


def _released(delay_s: float | None, not_before: datetime | None) -> Released:
    if delay_s is not None and not_before is not None:
        raise _bad_release("delay_s", "Say delay_s or not_before, not both.")
    if delay_s is not None and not 0 <= delay_s <= words.MAX_DELAY_S:
        raise _bad_release("delay_s", "This delay is below 0 or too far away.")
    if not_before is not None:
        try:
            return Released(at_us=clock.micros(words.moment(not_before, "not_before")))
        except Invalid as error:
            raise _bad_release("not_before", error.message) from None
    return Released(int((delay_s or 0) * US))


def _check_reach(held: Assignment, outcome: Released) -> None:
    own = selectors.limit("release_max_delay_s", held.workspace_id, held.tenant_id)
    most = selectors.RELEASE_MAX_DELAY_S if own is None else own
    after, name = outcome.after_us, "delay_s"
    if outcome.at_us is not None:
        after, name = outcome.at_us - (clock.micros(clock.now()) or 0), "not_before"
        if after <= 0:
            raise _bad_release(name, "This moment has passed.")
    if after > most * US:
        raise _bad_release(name, f"A job may be put off by at most {most} seconds.")


def _bad_release(field: str, message: str) -> Invalid:
    return Invalid(message, field=field, code="invalid_release")


def settle(key: Key, held: Assignment, outcome: Outcome) -> Settled:
    """Settle an assignment as it was read. Raises StaleFence and DurationExceeded; after its time nothing counts."""
    check_time(key, held)
    answer = settlement.settle([settlement.Report(held.job_id, held.id, outcome)], actor(key))[0]
    if isinstance(answer, Moved):
        noted.end(held, outcome)
        if answer.repeated and not _same_words(selectors.assignment(key.pk, held.id), outcome):
            raise _conflict(answer.state)
        return Settled(held.job_id, answer.state, answer.repeated)
    if isinstance(answer, StaleFence):
        # Somebody else's word came between looking and settling (A39, E5).
        between = {"result_status": ResultStatus.SETTLEMENT_CONFLICT} if held.live else {}
        raise overtime.refusal(selectors.assignment(key.pk, held.id), **between)
    raise answer


def _conflict(state: str) -> StaleFence:
    """Another word than this one was the first (A39, E5)."""
    return StaleFence(status=state, result_status=ResultStatus.SETTLEMENT_CONFLICT)


def check_time(key: Key, held: Assignment) -> None:
    """End an attempt whose time is over, which its holder is told: StaleFence or DurationExceeded (B26, C34)."""
    if held.over is not None:
        over = settlement.Report(held.job_id, held.id, overtime.outcome(held.over))
        answer = settlement.settle([over], actor(key))[0]
        noted.end(held, over.outcome)
        if isinstance(answer, JobsError) and not isinstance(answer, StaleFence):
            raise answer
        raise overtime.refusal(selectors.assignment(key.pk, held.id))


def _same_words(ended: Assignment, outcome: Outcome) -> bool:
    """Whether a holder's repeated word is the very one that ended the attempt (E5)."""
    match outcome:
        case Failed(code, message, retryable):
            return (ended.reason_code, ended.message or "", ended.retryable) == (code, storable(message), retryable)
        case Released(after_us, at_us):
            said = json.loads(selectors.release_body(ended) or "{}")
            when = (said.get("after", 0), said.get("available_at"))
            # With an abort pending it was cancelled, whenever it should have come back.
            return said.get("to") != State.QUEUED or when == (after_us, at_us)
        case _:
            return True
