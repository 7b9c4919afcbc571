"""What a runner over HTTP may do with its key: claim, complete, fail, release (C31 to C38, E8).

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

from jobs import clock, codecs, selectors
from jobs.conf import conf, registry
from jobs.errors import Invalid, Refused, StaleFence
from jobs.models import Key
from jobs.outcomes import Completed, Failed, Interrupted, Outcome, Released, ResultStatus, storable
from jobs.registry import nearest
from jobs.routing import UNROUTED
from jobs.selectors import Assignment
from jobs.services import assignments, settlement, words
from jobs.states import State
from jobs.store.claim import Batch, Claimed, Claimer, Pair
from jobs.store.moves import Moved

MAX_SLOTS = 100
UNKNOWN_TYPE_US = 15_000_000
US = 1_000_000
# Turns go on from claim to claim of this process: a cursor of a request's own would always begin at the first tenant.
_cursors: dict[tuple[int, int | None], dict[Pair, int]] = {}


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
                   strict=False, cursors=_cursors.setdefault(mine, {}))


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
    """The batch without jobs of versions that this site does not know (E7).

    They are handed back, uncounted, where a live worker has them, and paused where nobody does. Runners publish no
    versions: what they serve is what the site registers, and a process that does resumes them (`Upkeep`).
    """
    strange = [job for job in batch.jobs if registry().find(job.type, job.version) is None]
    if not strange:
        return batch
    back = Interrupted("unregistered_type", UNKNOWN_TYPE_US)
    settlement.settle([settlement.Report(job.id, job.fence, back, f"{job.type}@{job.version}") for job in strange], by)
    return Batch([job for job in batch.jobs if job not in strange], batch.again)


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


def complete(key: Key, name: str, artifact: Any) -> Settled:
    """Settle as completed, once the definition's codec has taken the artifact (B8, C38).

    Raises NotFound, StaleFence, and Invalid: then the attempt stays live. Durable.
    """
    held = selectors.assignment(key.pk, name)
    text = registry().exact(held.type, held.version).artifact.normal(artifact)
    return _settle(key, held, Completed(text, codecs.digest(text)))


def fail(key: Key, name: str, outcome: Failed) -> Settled:
    """Settle as failed; what that means for the job is the retry policy's word (C13 to C18). Durable."""
    return _settle(key, selectors.assignment(key.pk, name), outcome)


def release(key: Key, name: str, *, delay_s: float | None = None, not_before: datetime | None = None) -> Settled:
    """Give a job back, claimable now, after a delay or from a moment on (C32). Durable.

    Raises NotFound, StaleFence, TooManyReleases, and Invalid invalid_release (both, past, too far, after the deadline).
    """
    held = selectors.assignment(key.pk, name)
    outcome = _released(delay_s, not_before)
    # A repeat of an earlier release may lie in the past by now.
    if held.live:
        _check_reach(held, outcome)
    return _settle(key, held, outcome)


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


def _settle(key: Key, held: Assignment, outcome: Outcome) -> Settled:
    answer = settlement.settle([settlement.Report(held.job_id, held.id, outcome)], actor(key))[0]
    if isinstance(answer, Moved):
        if answer.repeated and not _same_words(selectors.assignment(key.pk, held.id), outcome):
            raise _conflict(answer.state)
        return Settled(held.job_id, answer.state, answer.repeated)
    if isinstance(answer, StaleFence):
        state = selectors.assignment(key.pk, held.id).state
        raise _conflict(state) if held.live else StaleFence(status=state)
    raise answer


def _conflict(state: str) -> StaleFence:
    """Somebody else's word came between looking and settling, or was another than this one (A39, E5)."""
    return StaleFence(status=state, result_status=ResultStatus.SETTLEMENT_CONFLICT)


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
