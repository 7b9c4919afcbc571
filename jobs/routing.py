"""Which worker group runs a job: rules by agent first, then by type, then the definition's own (A23, E7).

Rules are data from the settings; where a rule and a definition disagree, `disagreements` says so (A24).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNROUTED = "unrouted"
# Of the jobs that the house makes for itself: every worker serves it, and no tenant's cap counts them.
SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Rule:
    """One routing rule: jobs of this agent, or whose type starts so, or both, go to `worker_group`."""

    worker_group: str
    agent: str | None = None
    type_prefix: str | None = None

    def matches(self, agent: str | None, type_: str) -> bool:
        """Whether the rule speaks about this job."""
        if self.agent is not None and agent != self.agent:
            return False
        return type_.startswith(self.type_prefix) if self.type_prefix is not None else self.agent is not None


def route(rules: Sequence[Rule], agent: str | None, type_: str, own: str) -> str:
    """The worker group of a job: the first rule on its agent, else the first on its type, else `own` (A23)."""
    for rule in sorted(rules, key=lambda rule: rule.agent is None):
        if rule.matches(agent, type_):
            return rule.worker_group
    return own


def disagreements(rules: Sequence[Rule], definitions: Iterable[tuple[str, str]]) -> list[str]:
    """Each (type, own group) that a rule on types sends elsewhere, as a sentence (A24)."""
    return [
        f"{type_} declares worker group {own!r}, the routing rules send it to {routed!r}"
        for type_, own in definitions
        if (routed := route(rules, None, type_, own)) != own
    ]
