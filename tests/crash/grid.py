"""The crash grid: every place times every fault, and what must come of each, written down beforehand (RELIABILITY 5.5).

`outcomes` are the ends of the job's attempts in order, `starts` the claims whose handler began. Nothing here was
copied from a run.
"""

from __future__ import annotations

from dataclasses import dataclass

# Worker groups, a cell's own each: at most so many cells at once.
GROUPS = 40
FAULTS = ("kill", "raise", "drop", "cut")
ONCE = ("completed",)
LAPSED = ("lapsed", "completed")
BACK = ("interrupted", "completed")
FAILED = ("failed", "completed")


@dataclass(frozen=True)
class Cell:
    """One place with one fault. `actor` says which process is armed, `kind` of which type its job is."""

    point: str
    fault: str
    actor: str
    kind: str
    outcomes: tuple[str, ...] = ONCE
    starts: tuple[int, ...] = (1,)
    state: str = "completed"
    # What the database says right after the fault, before anybody repeats or recovers anything; | stands for "or".
    after: str = ""


def _worker(point: str, kind: str, **ends: tuple[tuple[str, ...], tuple[int, ...]]) -> list[Cell]:
    return [Cell(point, fault, "worker", kind, *ends[fault]) for fault in FAULTS]


def _each(point: str, actor: str, kind: str, after: dict[str, str], **more: object) -> list[Cell]:
    return [Cell(point, fault, actor, kind, after=after[fault], **more) for fault in FAULTS]  # type: ignore[arg-type]


ONE = (ONCE, (1,))
# What a COMMIT whose answer was lost has made is handed back by its own worker, without a failure (E8).
CELLS: list[Cell] = [
    # --- a worker claims ---
    *_worker("claim.found", "quick", kill=ONE, **{"raise": ONE}, drop=ONE, cut=(BACK, (2,))),
    *_worker("claim.written", "quick", kill=ONE, **{"raise": ONE}, drop=ONE, cut=(BACK, (2,))),
    *_worker("claim.committed", "quick", kill=(LAPSED, (2,)), **{"raise": (BACK, (2,))}, drop=ONE, cut=ONE),
    *_worker("worker.begin", "quick", kill=(LAPSED, (2,)), **{"raise": (BACK, (2,))}, drop=ONE, cut=ONE),
    # --- it runs ---
    *_worker("test.handler", "slow", kill=(LAPSED, (1, 2)), **{"raise": (FAILED, (1, 2))}, drop=ONE, cut=ONE),
    # Each child of an armed worker is armed: a job that kills them all is counted every time (case-B02).
    Cell("test.handler", "kill", "worker", "apart", ("failed",) * 5, (1, 2, 3, 4, 5), "failed"),
    Cell("test.handler", "raise", "worker", "apart", FAILED, (1, 2)),
    Cell("test.handler", "drop", "worker", "apart"),
    Cell("test.handler", "cut", "worker", "apart"),
    *_worker("start.committed", "slow", kill=(LAPSED, (1, 2)), **{"raise": ONE}, drop=ONE, cut=ONE),
    # --- it settles ---
    *_worker("settle.ready", "quick", kill=(LAPSED, (1, 2)), **{"raise": ONE}, drop=ONE, cut=ONE),
    *_worker("settle.written", "quick", kill=(LAPSED, (1, 2)), **{"raise": ONE}, drop=ONE, cut=ONE),
    *_worker("settle.committed", "quick", kill=ONE, **{"raise": ONE}, drop=ONE, cut=ONE),
    *_worker("publish.committing", "publishing", kill=(LAPSED, (1, 2)), **{"raise": (FAILED, (1, 2))}, drop=ONE,
             cut=ONE),
    *_worker("publish.committed", "publishing", kill=ONE, **{"raise": ONE}, drop=ONE, cut=ONE),
    # --- it settles in its handler's own transaction, and its definition is told of its end ---
    *_worker("atomic.written", "atomic", kill=(LAPSED, (1, 2)), **{"raise": (BACK, (1, 2))}, drop=(BACK, (1, 2)),
             cut=ONE),
    *_worker("ended.written", "told", kill=(LAPSED, (1, 2)), **{"raise": ONE}, drop=ONE, cut=ONE),
    # --- somebody enqueues; the same request is then repeated with its key (I11) ---
    *_each("enqueue.ready", "enqueue", "quick", {"kill": "none", "raise": "none", "drop": "none", "cut": "made"}),
    *_each("enqueue.written", "enqueue", "quick", {"kill": "none", "raise": "none", "drop": "none", "cut": "made"}),
    *_each("wake.asked", "enqueue", "quick", dict.fromkeys(FAULTS, "made")),
    *_each("wake.sending", "enqueue", "quick", dict.fromkeys(FAULTS, "made")),
    *_each("api.enqueued", "api", "quick", dict.fromkeys(FAULTS, "made")),
    # --- a runner over HTTP claims and completes; the same words are then repeated (D4) ---
    *_each("api.claimed", "runner", "outside", dict.fromkeys(FAULTS, "made"), outcomes=LAPSED, starts=()),
    *_each("api.settled", "runner", "outside", dict.fromkeys(FAULTS, "completed"), starts=()),
    # --- a person cancels, or requeues a dead letter, and repeats it ---
    *_each("cancel.written", "cancel", "quick",
           {"kill": "queued", "raise": "queued", "drop": "queued", "cut": "cancelled"}, outcomes=(), starts=(),
           state="cancelled"),
    # --- somebody steers a job, and repeats it with its key: told once; its holder says that it has dealt with it ---
    *_each("command.written", "steer", "quick", dict.fromkeys(FAULTS, "queued")),
    *_worker("command.consumed", "obeying", kill=(LAPSED, (1, 2)), **{"raise": (FAILED, (1, 2))},
             drop=(FAILED, (1, 2)), cut=(FAILED, (1, 2))),
    *_each("requeue.written", "requeue", "quick",
           {"kill": "failed", "raise": "failed", "drop": "failed", "cut": "queued"}, outcomes=FAILED, starts=(2,)),
    # --- a bulk answer; another process carries it on, and what it counted is what it did ---
    *_each("bulk.written", "bulk", "quick",
           # Undone with the process; a worker of another cell may have carried it on already.
           {"kill": "failed|queued", "raise": "queued", "drop": "queued", "cut": "queued"}, outcomes=FAILED,
           starts=(2,)),
    # Undone with the process, or made anew by whoever goes on: nothing is done before all is gathered.
    *_each("bulk.gathered", "bulk", "quick",
           dict.fromkeys(FAULTS, "failed|queued"), outcomes=FAILED, starts=(2,)),
    *_each("bulk.committed", "bulk", "quick", dict.fromkeys(FAULTS, "queued"), outcomes=FAILED, starts=(2,)),
    # --- a person redacts a job that was cancelled, or deletes a tenant beside it; another process carries that on ---
    *_each("redact.written", "redact", "quick", dict.fromkeys(FAULTS, "cancelled"), outcomes=(), starts=(),
           state="cancelled"),
    *_each("erase.written", "erase", "quick", dict.fromkeys(FAULTS, "cancelled"), outcomes=(), starts=(),
           state="cancelled"),
    # --- the duties; a batch that fails is done one by one, on another connection where one was lost ---
    *_each("recovery.found", "recover", "quick",
           {"kill": "leased", "raise": "queued", "drop": "queued", "cut": "queued"}, outcomes=LAPSED, starts=(2,)),
    *_each("recovery.written", "recover", "quick",
           {"kill": "leased", "raise": "queued", "drop": "queued", "cut": "queued"}, outcomes=LAPSED, starts=(2,)),
    *_each("promote.written", "promote", "quick", dict.fromkeys(FAULTS, "queued")),
    # --- a timer fires; whoever comes next finds its moment undone, or done ---
    *_each("timer.fired", "fire", "quick", {"kill": "none", "raise": "made", "drop": "none", "cut": "made"}),
    *_each("timer.committed", "fire", "quick", dict.fromkeys(FAULTS, "made")),
    # --- a failure spends its tenant's only retry: what was rolled back was not spent, or its next end is a letter
    *_worker("window.spent", "spending", kill=(LAPSED, (1, 2)), **{"raise": (FAILED, (1, 2))}, drop=(FAILED, (1, 2)),
             cut=(FAILED, (1, 2))),
    # --- a callback is sent and nobody has noted it: sent again, under its own id (case-I02); its sender is the job
    *(Cell("delivery.sent", fault, "sender", "quick", LAPSED if fault == "kill" else FAILED, ()) for fault in FAULTS),
]
POINTS = list(dict.fromkeys(cell.point for cell in CELLS))
# The short form: every place is killed, and every second one has one of the other faults, in turns.
SHORT = {
    "kill": [cell for cell in CELLS if cell.fault == "kill"],
    "turns": [cell for cell in CELLS if POINTS.index(cell.point) % 2 == 0
              and cell.fault == FAULTS[1 + POINTS.index(cell.point) // 2 % 3]],
}
