"""Receipts: the chain of hashes, and the fold that must say what the row says."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from jobs import receipts
from jobs.receipts import BrokenHistory, Kind, Receipt, View, fold, link
from jobs.states import State

JOB = uuid.UUID("018f3c6e-0000-7000-8000-000000000001")
A, B = "aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000"
HELD = [State.LEASED, State.RUNNING]


class History:
    """Receipts of one job, chained as they are told."""

    def __init__(self) -> None:
        self.told: list[Receipt] = []

    def tell(self, kind: str, **facts: Any) -> History:
        number = len(self.told) + 1
        body, at = receipts.body_text(**facts), 1_000 * number
        prev = self.told[-1].hash if self.told else receipts.ZERO
        self.told.append(Receipt(JOB, number, kind, at, body, link(prev, JOB, number, at, kind, body)))
        return self

    @property
    def view(self) -> View:
        view = fold(self.told)
        assert view is not None
        return view


def born() -> History:
    return History().tell(Kind.ENQUEUED, input="in", to="queued", by="python", generation=3)


def leased(attempt: str = A) -> History:
    return born().tell(Kind.LEASED, attempt=attempt, to="leased")


def into(state: State) -> History:
    """A history that ends in `state`; a held one belongs to attempt A."""
    match state:
        case State.QUEUED:
            return born()
        case State.LEASED:
            return leased()
        case State.RUNNING:
            return leased().tell(Kind.HEARTBEAT, attempt=A, to="running")
        case State.PAUSED:
            return born().tell(Kind.PAUSED, to="paused", reason="paused")
        case State.COMPLETED:
            return leased().tell(Kind.COMPLETED, attempt=A, to="completed", artifact="out")
        case State.FAILED:
            return leased().tell(Kind.FAILED, attempt=A, to="failed", failure=True, reason="terminal_error")
        case State.CANCELLED:
            return born().tell(Kind.CANCELLED, to="cancelled", reason="cancelled")
        case _:
            return born().tell(Kind.SUPERSEDED, to="superseded", reason="superseded")


def test_a_link_is_the_hash_of_a_known_vector() -> None:
    """E12: prev || uuid || number || microseconds || length of kind || kind || body, spelled out by hand."""
    body = '{"by":"python","to":"queued"}'
    said = bytes(32) + JOB.bytes + b"\0" * 7 + b"\x01" + (1_700_000_000_000_001).to_bytes(8, "big") \
        + b"\0\0\0\x0c" + b"job.enqueued" + body.encode()
    assert link(receipts.ZERO, JOB, 1, 1_700_000_000_000_001, "job.enqueued", body) == sha256(said).digest()
    assert sha256(said).hexdigest() == "42afde5582f65971e50b0f07418e5a1af1f5537b1694000cdb085dbe622ab493"


def test_a_body_is_canonical_json_without_what_is_not_known() -> None:
    """E12: sorted keys, no spaces, UTF-8, None left out, False and 0 kept."""
    assert (
        receipts.body_text(to="queued", by="é\n", a=None, n=0, f=False) == '{"by":"é\\n","f":false,"n":0,"to":"queued"}'
    )


@pytest.mark.parametrize("state", State)
def test_the_fold_of_a_history_ends_in_its_state(state: State) -> None:
    """A7, E14.19: each state by its shortest history, with ended and live attempt as the row has them."""
    history = into(state)
    view = history.view
    assert view.state == state
    assert view.attempt == (A if state in HELD else None)
    assert (view.ended_at is not None) == (state in receipts.TERMINAL)
    assert (view.cancelled_at is not None) == (state is State.CANCELLED)
    assert (view.number, view.revision) == (len(history.told), len(history.told))
    assert receipts.check_chain(history.told) == history.told[-1].hash


def test_a_birth_keeps_what_was_asked_for() -> None:
    """E12: generation, input hash, and the moment from which it may be claimed."""
    assert (born().view.generation, born().view.input_hash, born().view.available_at) == (3, "in", 1_000)
    assert History().tell(Kind.ENQUEUED, input="x", to="queued", after=500).view.available_at == 1_500
    assert History().tell(Kind.ENQUEUED, input="x", to="queued", available_at=9).view.available_at == 9


ENDS = [
    (Kind.COMPLETED, {"to": "completed", "artifact": "out"}, {}),
    (Kind.FAILED, {"to": "queued", "failure": True, "after": 5, "reason": "attempt_error"}, {"failures": 1}),
    (Kind.FAILED, {"to": "failed", "failure": True, "reason": "terminal_error"}, {"failures": 1}),
    (Kind.LEASE_EXPIRED, {"to": "queued", "failure": True}, {"lapses": 1, "failures": 1}),
    (Kind.LEASE_EXPIRED, {"to": "queued"}, {"lapses": 1}),
    (Kind.RELEASED, {"to": "queued", "available_at": 77}, {"releases": 1}),
    (Kind.INTERRUPTED, {"to": "queued"}, {"interruptions": 1}),
    (Kind.PAUSED, {"to": "paused", "reason": "paused"}, {"pauses": 1}),
    (Kind.CANCELLED, {"to": "cancelled", "reason": "cancelled"}, {}),
    (Kind.SUPERSEDED, {"to": "superseded", "reason": "superseded"}, {}),
]
COUNTERS = ("failures", "lapses", "releases", "interruptions", "pauses")


@pytest.mark.parametrize("state", HELD)
@pytest.mark.parametrize(("kind", "facts", "raised"), ENDS, ids=lambda x: str(x) if isinstance(x, Kind) else "")
def test_each_end_of_the_live_attempt_moves_and_counts(
        kind: Kind, facts: dict[str, Any], raised: dict[str, int], state: State) -> None:
    """A7, E2, E12: from leased and from running."""
    before = into(state).view
    history = into(state).tell(kind, attempt=A, **facts)
    view = history.view
    assert (view.state, view.reason, view.attempt) == (facts["to"], facts.get("reason"), None)
    assert {name: getattr(view, name) for name in COUNTERS} == {name: raised.get(name, 0) for name in COUNTERS}
    assert view.revision == before.revision + 1
    assert (view.claims, view.chain_claims) == (1, 1)
    at = history.told[-1].at_us
    if view.state == State.QUEUED:
        assert view.available_at == facts.get("available_at", at + facts.get("after", 0))
    assert view.artifact_hash == ("out" if kind is Kind.COMPLETED else None)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("kind", "facts"), [
    *((kind, facts) for kind, facts, _ in ENDS),
    (Kind.HEARTBEAT, {"to": "running"}),
    (Kind.PROGRESS, {"progress": {"stage": "read", "event": "started"}}),
    (Kind.CHECKPOINT, {"checkpoint": 9, "hash": "no"}),
], ids=lambda x: str(x) if isinstance(x, Kind) else "")
def test_news_of_an_attempt_that_is_not_the_live_one_is_inert(kind: Kind, facts: dict[str, Any], state: State) -> None:
    """A9, A10, E15: a late heartbeat, progress, completion or failure changes nothing in any state."""
    before = into(state).view
    after = into(state).tell(kind, attempt=B, **facts).view
    assert replace(after, number=before.number) == before


@pytest.mark.parametrize("state", [s for s in State if s is not State.QUEUED])
def test_a_second_lease_changes_nothing(state: State) -> None:
    """A8, E15: only a queued job can be leased."""
    before = into(state).view
    after = into(state).tell(Kind.LEASED, attempt=B, to="leased").view
    assert replace(after, number=before.number) == before


def test_heartbeat_progress_and_checkpoint_of_the_live_attempt_count() -> None:
    """A9, B30, C33: they move no counter of the chain."""
    view = (leased().tell(Kind.HEARTBEAT, attempt=A, to="running")
            .tell(Kind.PROGRESS, attempt=A, progress={"stage": "read", "event": "started"})
            .tell(Kind.CHECKPOINT, attempt=A, checkpoint=4, hash="cp").view)
    assert (view.state, view.attempt) == ("running", A)
    assert view.progress == {"stage": "read", "event": "started"}
    assert (view.checkpoint_number, view.checkpoint_hash) == (4, "cp")
    assert (view.revision, view.number) == (3, 5)


def test_a_requeue_starts_a_new_chain_and_keeps_what_lasts() -> None:
    """C7, C27, E2: counters of the chain start again; claims, checkpoint and the first start stay."""
    history = (leased().tell(Kind.CHECKPOINT, attempt=A, checkpoint=2, hash="cp")
               .tell(Kind.FAILED, attempt=A, to="failed", failure=True, reason="terminal_error"))
    started = history.view.started_at
    view = history.tell(Kind.REQUEUED, to="queued", reason="requeued").tell(Kind.LEASED, attempt=B, to="leased").view
    assert (view.chain, view.chain_claims, view.claims, view.failures) == (2, 1, 2, 0)
    assert (view.checkpoint_number, view.started_at, view.ended_at) == (2, started, None)


@pytest.mark.parametrize("kind", [Kind.DISCARDED, Kind.COMMAND, Kind.CONSUMED, Kind.REDACTED])
def test_a_fact_that_moves_nothing_moves_nothing(kind: Kind) -> None:
    """E12: only the number grows."""
    before = into(State.FAILED).view
    assert replace(into(State.FAILED).tell(kind, by="user:x").view, number=before.number) == before


def test_a_change_of_the_input_is_folded() -> None:
    """E12: input hashes are compared with the row."""
    assert born().tell(Kind.CHANGED, input="new").view.input_hash == "new"
    assert born().tell(Kind.CHANGED, note="other").view.input_hash == "in"


@pytest.mark.parametrize("kind", Kind)
def test_an_event_of_an_unknown_job_raises_but_for_two(kind: Kind) -> None:
    """A11, E14.4, E15: failed and lease_expired are ignored, the others name the job."""
    history = History().tell(kind, input="in", to="queued", attempt=A)
    if kind is Kind.ENQUEUED:
        assert history.view.state == "queued"
    elif kind in (Kind.FAILED, Kind.LEASE_EXPIRED):
        assert fold(history.told) is None
    else:
        with pytest.raises(BrokenHistory, match=f"Invariant: no job for {JOB}"):
            fold(history.told)


def test_no_receipts_fold_to_no_job_and_an_empty_chain() -> None:
    """A12."""
    assert fold([]) is None
    assert receipts.check_chain([]) == receipts.ZERO


def test_a_gap_is_found_and_named() -> None:
    """A12: a missing receipt is a broken prev, wherever it is missing."""
    told = into(State.RUNNING).told
    for gone in range(len(told) - 1):
        with pytest.raises(BrokenHistory, match=f"receipt {gone + 1}: broken prev"):
            receipts.check_chain(told[:gone] + told[gone + 1:])
    with pytest.raises(BrokenHistory, match="receipt 1: broken prev"):
        receipts.check_chain(told[::-1])


@pytest.mark.parametrize("change", [
    {"body": json.dumps({"to": "completed"})}, {"kind": "job.changed"}, {"at_us": 5}, {"hash": bytes(32)},
    {"job_id": uuid.UUID(int=7)},
], ids=lambda change: next(iter(change)))
def test_tampering_with_any_part_of_a_receipt_is_found(change: dict[str, Any]) -> None:
    """A12, E12: body, kind, moment, hash and job are all in the hash."""
    told = into(State.COMPLETED).told
    for n in range(len(told)):
        forged = [*told[:n], replace(told[n], **change), *told[n + 1:]]
        with pytest.raises(BrokenHistory, match=f"receipt {n + 1}: hash mismatch"):
            receipts.check_chain(forged)


def test_a_receipt_that_was_hashed_anew_breaks_the_next_one() -> None:
    """A12: who rewrites one receipt must rewrite all that follow, and the head on the job."""
    told = into(State.COMPLETED).told
    body = receipts.body_text(to="leased", attempt=B)
    forged = replace(told[1], body=body, hash=link(told[0].hash, JOB, 2, told[1].at_us, told[1].kind, body))
    with pytest.raises(BrokenHistory, match="receipt 3: hash mismatch"):
        receipts.check_chain([told[0], forged, told[2]])
