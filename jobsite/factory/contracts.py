"""The contracts of the nine kinds, as data: what a runner that serves one has to know beside its payload (A20, A22).

The source gives `factory.dispatch` the group control and `factory.task.run` alone a durable activity; the other
entries, and whose a kind is where a request names no agent, are this site's reading of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

# The agents that have handlers; a job for any other is accepted with a warning, and fails (A25, A26).
FACTORY: Final = "factory"
CONTROL: Final = "factory-control"
MONITOR: Final = "factory-monitor"
CODEX: Final = "codex"
AGENTS: Final = (FACTORY, CONTROL, MONITOR, CODEX)


@dataclass(frozen=True, slots=True)
class Contract:
    """What one kind declares (A22).

    `durable_activity`: one execution may outlast the process that began it. `objective_scoped`: the job belongs to an
    objective. `reconciles`: the objective is looked at again when the job ends or its lease expires. `live`: people
    watch it at work. `audits`: its end asks for an audit of the objective.
    """

    kind: str
    group: Literal["chat", "codex", "control"]
    agent: str
    does: str
    workflow: str | None = None
    durable_activity: bool = False
    objective_scoped: bool = False
    reconciles: bool = False
    live: bool = False
    audits: bool = False

    @property
    def worker_group(self) -> str:
        """The site's name of the group: A's workers register under `receipt-` and the role."""
        return f"receipt-{self.group}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that are set, by name."""
        return tuple(f.name for f in fields(self) if f.type == "bool" and getattr(self, f.name))

    def told(self) -> str:
        """The contract in a sentence, as catalogues show it."""
        flags = ", ".join(flag.replace("_", " ") for flag in self.flags) or "no flags"
        return f"{self.does} Contract: group {self.group}; {flags}."


CONTRACTS: Final = {contract.kind: contract for contract in (
    Contract("factory.dispatch", "control", CONTROL, "Turns an objective into a graph of tasks.",
             workflow="objective", objective_scoped=True, reconciles=True),
    Contract("factory.run", "chat", FACTORY, "Runs what a chat message began.", live=True),
    Contract("factory.integration.publish", "codex", CODEX, "Publishes what the tasks of an objective have made.",
             objective_scoped=True, reconciles=True, audits=True),
    Contract("factory.integration.validate", "codex", CODEX, "Validates what the tasks of an objective have made.",
             objective_scoped=True, reconciles=True),
    Contract("factory.objective.audit", "control", CONTROL, "Audits an objective that has ended.",
             objective_scoped=True),
    Contract("factory.objective.control", "control", CONTROL, "Decides what an objective does next.",
             workflow="objective", objective_scoped=True, audits=True),
    Contract("factory.objective.watchdog", "control", CONTROL, "Looks for objectives that stand still."),
    Contract("factory.task.monitor", "chat", MONITOR, "Watches a task at work.", objective_scoped=True,
             reconciles=True, live=True),
    Contract("factory.task.run", "codex", CODEX, "Does one task of an objective.", workflow="task",
             durable_activity=True, objective_scoped=True, reconciles=True, live=True),
)}
