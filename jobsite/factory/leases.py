"""How long the jobs of `factory` are believed and may run: by agent, kind and payload (A40 to A44)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from jobs.leases import timeout_s
from jobs.registry import Span
from jobsite.factory.contracts import CODEX, CONTRACTS, CONTROL, MONITOR

CAP_S: Final = 3_600.0
# What a codex job may take beyond its own timeout before it is given up.
SLACK_S: Final = 300.0
FLOOR_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """The settings of `FACTORY` that are spans, in seconds. Raises ImproperlyConfigured (A40 to A44, A49)."""

    LEASE_S: float = 300.0
    CONTROL_LEASE_S: float = 900.0
    CODEX_LEASE_S: float = 900.0
    CONTROL_TIMEOUT_S: float | None = None
    WATCHDOG_TIMEOUT_S: float = 60.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), 3 if "LEASE" in f.name else 1
            if value is not None and not least <= value <= CAP_S:
                raise ImproperlyConfigured(
                    f"FACTORY_{f.name} is {value:g}, and must be seconds from {least} to {CAP_S:g}.")

    @classmethod
    def of(cls, said: dict[str, Any]) -> Numbers:
        """Of the site's setting, which holds more than spans."""
        return cls(**{f.name: said[f.name] for f in fields(cls) if f.name in said})


def lease_s(numbers: Numbers, kind: str, payload: dict[str, Any], agent: str | None) -> float:
    """The lease of a job (A40 to A43); without an agent that of the kind's own."""
    agent = agent or CONTRACTS[kind].agent
    if agent == CODEX:
        asked = payload.get("timeoutMs")
        return min(CAP_S, max(numbers.CODEX_LEASE_S, asked / 1_000 + SLACK_S if asked else 0.0))
    if agent == CONTROL and kind == "factory.objective.control":
        return max(numbers.LEASE_S, numbers.CONTROL_LEASE_S)
    if agent == MONITOR and kind == "factory.task.monitor" and payload.get("executionPath") == "computer":
        return max(numbers.LEASE_S, numbers.CODEX_LEASE_S)
    return numbers.LEASE_S


def execution_s(numbers: Numbers, kind: str, payload: dict[str, Any], agent: str | None) -> float:
    """The timeout of an attempt: its lease less a second, at least five; a setting may lower objective control (A44).

    The watchdog has one of its own, at least ten seconds (A49).
    """
    if kind == "factory.objective.watchdog":
        return max(10.0, numbers.WATCHDOG_TIMEOUT_S)
    own = timeout_s(lease_s(numbers, kind, payload, agent))
    if kind == "factory.objective.control" and numbers.CONTROL_TIMEOUT_S is not None:
        own = max(FLOOR_S, min(own, numbers.CONTROL_TIMEOUT_S))
    return own


def lease(numbers: Numbers, kind: str) -> Span:
    """The lease of a kind, for its definition."""
    return Span(lambda payload, agent: lease_s(numbers, kind, payload, agent), CAP_S, by_agent=True)


def timeout(numbers: Numbers, kind: str) -> Span:
    """The timeout of a kind, for its definition."""
    return Span(lambda payload, agent: execution_s(numbers, kind, payload, agent), CAP_S, by_agent=True)
