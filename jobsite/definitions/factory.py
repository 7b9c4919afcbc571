"""The nine payload kinds of `factory`: external jobs with contracts, codecs and leases (A20 to A25, A40 to A44, E9)."""

from __future__ import annotations

from django.conf import settings

from jobs import RetryPolicy
from jobs.callbacks import EVENTS
from jobs.registry import Definition, external
from jobsite.factory import leases
from jobsite.factory.contracts import CONTRACTS, Contract
from jobsite.factory.payloads import PAYLOADS, Finished

# Unless the request says otherwise; the agents' endpoint clamps what it says to 1..8 (A19).
RETRY = RetryPolicy(max_attempts=2)


def _definition(contract: Contract, numbers: leases.Numbers, *, watchdog: bool) -> Definition:
    kind = contract.kind
    return external(
        kind, input=PAYLOADS[kind], artifact=Finished, worker_group=contract.worker_group,
        description=contract.told(), max_claims=32, retention=None, retry=RETRY, max_input_bytes=128 * 1024,
        callback_events=tuple(EVENTS),
        lease_s=leases.lease(numbers, kind), timeout_s=leases.timeout(numbers, kind),
        enabled=watchdog or kind != "factory.objective.watchdog",
        subject=lambda payload: payload.get("taskId") or payload.get("objectiveId"))


def definitions(said: dict[str, object]) -> list[Definition]:
    """The definitions under the setting `FACTORY`. Raises ImproperlyConfigured for numbers that cannot work."""
    numbers = leases.Numbers.of(said)
    return [_definition(contract, numbers, watchdog=bool(said.get("WATCHDOG", True)))
            for contract in CONTRACTS.values()]


DEFINITIONS = definitions(getattr(settings, "FACTORY", {}))
