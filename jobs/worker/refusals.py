"""What this process serves, what it does not run, and what becomes of that (A26, B43, E7)."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.conf import conf
from jobs.outcomes import Failed, Interrupted, Outcome
from jobs.registry import Definition
from jobs.routing import SYSTEM
from jobs.services import overtime
from jobs.services.assignments import Claimed
from jobs.worker.plan import Plan

UNKNOWN_US = 15 * 1_000_000
UNKNOWN = Interrupted("unregistered_type", UNKNOWN_US)


def pairs(plan: Plan, known: Iterable[Definition]) -> list[tuple[str, str]]:
    """The worker groups and queues to claim from: the plan's, and those of the house's own jobs whatever it says."""
    chosen = [(group, queue) for queue in plan.queues for group in plan.groups]
    return list(dict.fromkeys([*chosen, *((SYSTEM, d.queue) for d in known if d.worker_group == SYSTEM)]))


def startable(known: Iterable[Definition]) -> list[tuple[str, int]] | None:
    """Every type that may be started, if some may not; else no filter, because it costs the claim (B43, E7)."""
    known = list(known)
    return None if all(d.runs for d in known) else [(d.type, d.version) for d in known if d.runs]


def refusal(job: Claimed, definition: Definition | None) -> Outcome | None:
    """Why this worker does not run a job that it has claimed; None where it does."""
    if job.agent is not None and job.agent not in conf().AGENTS:
        return Failed("no_handler", f"No handler for agent '{job.agent}'", retryable=False)
    if definition is None or definition.executor == "external":
        return UNKNOWN
    if not definition.runs:
        return Interrupted("definition_stopped", UNKNOWN_US)
    return overtime.SPENT if job.max_duration_ms == 0 else None
