"""Callbacks: what a request may ask for, and each event of a job as a job that sends it (A37, C2, E11).

The transaction that makes the news writes the delivery and its sender, so that no death of a process loses it. The
senders are the house's own: of the site's untenanted tenant whatever workspace the job is in, so that a host is spared
over all of them, under no cap of any tenant, and nobody is told of them in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from jobs.callbacks import DELIVERY_TYPE, EVENT_OF, EVENTS, HOUSE, Endpoint, group
from jobs.codecs import digest
from jobs.conf import callback_policy, conf
from jobs.errors import Invalid
from jobs.ids import uuid7
from jobs.publish import Call
from jobs.registry import Definition, define
from jobs.retry import RetryPolicy
from jobs.routing import SYSTEM
from jobs.services import words
from jobs.services.draft import Door, Request, row_of
from jobs.services.words import Place
from jobs.states import State
from jobs.store import admission, calling, enqueue
from jobs.store.calling import New, Told

KEPT_S = 7 * 86_400.0
BATCH = 500
# 12 tries over some three hours; a host that rests adds to that.
RETRY = RetryPolicy(max_attempts=12, base_delay_s=5.0, max_delay_s=3_600.0)
DOOR = Door("system", "scheduler", "system:callbacks")
_ENDS = {State.COMPLETED: "delivered", State.FAILED: "failed", State.CANCELLED: "dropped", State.SUPERSEDED: "dropped",
         State.QUEUED: "pending"}


def definition(queues: Sequence[str]) -> Definition:
    """The job that sends one callback, in one of the site's queues; short, bounded, and in no child of its own."""
    own = "collect" if "collect" in queues or not queues else queues[0]
    return define(DELIVERY_TYPE, callback_delivery, {
        "label": "Callback delivery", "worker_group": SYSTEM, "queue": own, "isolated": False, "timeout_s": 30.0,
        "retry": RETRY, "dead_letter": True, "origins": frozenset({DOOR.origin}), "retention": KEPT_S, "logs": False})


def callback_delivery(run: Any, delivery: UUID) -> dict[str, str | int | None]:
    """Sends one callback."""
    from jobs.services import deliveries

    return deliveries.deliver(str(delivery), str(run.job_id))


def target_of(url: str | None) -> Endpoint:
    """Where a delivery goes: the job's own address, or the site's. Raises Invalid."""
    return callback_policy().target(url if url is not None else (conf().CALLBACK or {}).get("url"))


# --- in the moving transaction -------------------------------------------------------------------------------------


def note(calls: Sequence[Call]) -> None:
    """For each of these moves: the delivery and the job that sends it, once a chain and event.

    Inside the moving transaction (a `publish.on_call` hook). Nothing in it can be refused: what a caller may ask for
    was judged at enqueue, and an address that the site allows no more is dropped by its sender. Moves of senders are
    noted in the log.
    """
    senders = [(job_id, _ENDS[state]) for job_id, state, events in calls if events & HOUSE and state in _ENDS]
    if senders:
        calling.ended(senders)
    events = {job_id: event for job_id, state, mask in calls
              if not mask & HOUSE and (event := _event(state)) is not None and mask & EVENTS[event]}
    if events and conf().callbacks:
        ids = list(events)
        for begin in range(0, len(ids), BATCH):
            _tell(calling.wanted(ids[begin : begin + BATCH]), events)


def _event(state: State) -> str | None:
    return "dispatched" if state is State.LEASED else EVENT_OF.get(state)


def _tell(told: Sequence[Told], events: dict[str, str]) -> None:
    new = [New(str(uuid7()), str(uuid7()), events[one.job_id], one, _host(one.url), one.url is None) for one in told]
    made = calling.make(new) if new else set()
    send([n for n in new if n.id in made])


def _host(url: str | None) -> str:
    try:
        return target_of(url).host
    except Invalid:
        return ""


def send(new: Sequence[New]) -> None:
    """The jobs that send these deliveries, behind the gate where their hosts have no room."""
    if not new:
        return
    spot = words.place(None, None)
    rows = [_row(one, spot) for one in new]
    groups = [admission.Group(row["workspace_id"], row["tenant_id"], row["exclusive_group"]) for row in rows]
    for row, gate in zip(rows, admission.gates(groups), strict=True):
        row["held"] = gate
    enqueue.insert(rows)


def _row(one: New, spot: Place) -> dict[str, Any]:
    row = row_of(Request(DELIVERY_TYPE, {"delivery": one.id}), spot, DOOR, digest(one.id))
    return {**row, "id": one.sender_id, "exclusive_group": group(one.host)}
