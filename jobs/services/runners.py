"""What a runner over HTTP may do with what it holds: fail, release, and what a completion needs (C32 to C38, E8).

The same verbs as a worker's (`assignments`, `settlement`), bound to the key that claimed: an assignment of another
key is not there. Settling again with the same words is a quiet yes, with other words a stale claim (E5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs import clock, codecs, selectors
from jobs.conf import registry
from jobs.diagnostics import snapshot
from jobs.errors import Conflict, Invalid, JobsError, StaleFence
from jobs.models import Job, Key
from jobs.outcomes import Completed, Failed, Outcome, Released, ResultStatus, Stopped, storable
from jobs.selectors import Assignment
from jobs.services import assignments, noted, overtime, settlement, words
from jobs.states import State
from jobs.store.claim import Claimed
from jobs.store.moves import Answer, Moved

US = 1_000_000


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
    return settle(key, held, failing(held, outcome, diagnostic))


def failing(held: Assignment, outcome: Failed, diagnostic: dict[str, Any] | None = None) -> Failed:
    """The outcome of a failure, its diagnostic noted. Raises Invalid invalid_diagnostic."""
    if diagnostic is not None:
        noted.note(held, snapshot(diagnostic, beneath="diagnostic."))
    return outcome


def cancelled(key: Key, name: str) -> Settled:
    """Settle as cancelled: the runner has stopped as it was asked to (A35, E5, E8). Durable.

    Raises NotFound, StaleFence, and NotAsked: a runner that cannot go on releases or fails its job.
    """
    held = selectors.assignment(key.pk, name)
    return settle(key, held, stopping(held))


def stopping(held: Assignment) -> Stopped:
    """The outcome of a stop that was asked for. Raises NotAsked."""
    # Once asked, asked until the end: what is seen here stays true for the write.
    beat = assignments.peek([held.id]).get(held.id)
    if beat is not None and beat.abort is None:
        raise NotAsked()
    return Stopped()


def release(key: Key, name: str, *, delay_s: float | None = None, not_before: datetime | None = None) -> Settled:
    """Give a job back, claimable now, after a delay or from a moment on (C32). Durable.

    Raises NotFound, StaleFence, TooManyReleases, and Invalid invalid_release (both, past, too far, after the deadline).
    """
    held = selectors.assignment(key.pk, name)
    return settle(key, held, releasing(held, delay_s, not_before))


def releasing(held: Assignment, delay_s: float | None, not_before: datetime | None) -> Released:
    """The outcome of a release. Raises Invalid invalid_release."""
    outcome = _released(delay_s, not_before)
    # A repeat of an earlier release may lie in the past by now.
    if held.live:
        _check_reach(held, outcome)
    return outcome


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
    return _ended(key, held, outcome, answer)


def settle_all(key: Key, words_: Sequence[tuple[Assignment, Outcome]]) -> list[Settled | JobsError]:
    """Settle many as they were read, in one transaction where that is possible; each is refused for itself.

    Whose time is over is ended so, alone. Durable.
    """
    late = {n for n, (held, _) in enumerate(words_) if held.over is not None}
    reports = [settlement.Report(held.job_id, held.id, outcome)
               for n, (held, outcome) in enumerate(words_) if n not in late]
    answers = iter(settlement.settle(reports, actor(key)) if reports else [])
    return [_refused(settle, key, held, outcome) if n in late else _refused(_ended, key, held, outcome, next(answers))
            for n, (held, outcome) in enumerate(words_)]


def _refused(verb: Callable[..., Settled], *args: Any) -> Settled | JobsError:
    try:
        return verb(*args)
    except JobsError as error:
        return error


def _ended(key: Key, held: Assignment, outcome: Outcome, answer: Answer) -> Settled:
    """What the settlement's answer means to the runner. Raises it where it is a refusal."""
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
