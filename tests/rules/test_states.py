"""The table of moves against E1's table, typed again here by hand, and the words of callers."""

from __future__ import annotations

import pytest

from jobs import states
from jobs.outcomes import END_OF, VERB_OF, End
from jobs.receipts import KIND_OF, Kind
from jobs.states import ACTIVE, FENCED, HELD, MOVES, STATUS, TERMINAL, State, Verb
from jobs.store import verbs

# REQUIREMENTS E1, row by row. "held" is leased and running, "active" is everything that has not ended.
TABLE = """
queued                        claim      leased
leased                        start      running
leased,running                complete   completed
leased,running                fail       queued,failed,cancelled
leased,running                stop       cancelled
leased,running                release    queued,cancelled
leased,running                interrupt  queued,failed,cancelled
leased,running                lapse      queued,failed,cancelled
queued,leased                 spoil      failed
queued                        expire     failed
queued                        exhaust    failed
queued                        pause      paused
leased,running                pause      paused,cancelled
paused                        resume     queued,failed
queued,paused,leased,running  cancel     cancelled
queued,paused,leased,running  supersede  superseded
failed                        requeue    queued
"""
E1 = {
    (from_, verb): set(to.split(","))
    for froms, verb, to in (line.split() for line in TABLE.strip().splitlines())
    for from_ in froms.split(",")
}
PAIRS = [(state, verb) for state in State for verb in Verb]


@pytest.mark.parametrize(("state", "verb"), PAIRS, ids=lambda word: str(word))
def test_each_pair_of_state_and_verb_is_as_the_table_says(state: State, verb: Verb) -> None:
    """E1, B19, E14.3: legal pairs lead where the table says, all others nowhere."""
    assert set(MOVES.get((state, verb), ())) == E1.get((state.value, verb.value), set())


def test_the_sets_of_states_are_those_of_the_model() -> None:
    """E1: four terminal states, two held ones, and active means not terminal, paused included."""
    assert {s.value for s in TERMINAL} == {"completed", "failed", "cancelled", "superseded"}
    assert {s.value for s in HELD} == {"leased", "running"}
    assert {s.value for s in ACTIVE} == {"queued", "leased", "running", "paused"}


def test_nothing_but_a_requeue_leaves_a_terminal_state() -> None:
    """E14.3, E14.12: and a requeue leaves failed alone."""
    assert {(s, v) for s, v in MOVES if s in TERMINAL} == {(State.FAILED, Verb.REQUEUE)}


def test_every_verb_of_a_holder_is_fenced_and_no_other() -> None:
    """E14.2, B23."""
    assert {v.value for v in FENCED} == {"start", "complete", "fail", "stop", "release", "interrupt", "lapse"}


def test_each_verb_has_a_decider_a_receipt_and_an_end_where_it_ends_an_attempt() -> None:
    """E12: the kind follows the verb, one receipt a move."""
    assert set(KIND_OF) == set(Verb)
    assert set(verbs._DECIDERS) == set(Verb) - {Verb.CLAIM}
    ends = {verb for (state, verb), _ in MOVES.items() if state in HELD} - {Verb.START}
    assert set(END_OF) == ends
    assert set(END_OF.values()) == set(End)
    assert {KIND_OF[v] for v in VERB_OF.values()} == {
        Kind.COMPLETED, Kind.FAILED, Kind.CANCELLED, Kind.RELEASED, Kind.INTERRUPTED}


def test_callers_read_one_of_six_statuses() -> None:
    """A5, C1, E1: paused reads queued and superseded reads cancelled."""
    assert {s.value: STATUS[s] for s in State} == {
        "queued": "queued", "leased": "leased", "running": "running", "paused": "queued", "completed": "completed",
        "failed": "failed", "cancelled": "cancelled", "superseded": "cancelled"}
    assert states.status("paused") == "queued"
    with pytest.raises(ValueError, match="asleep"):
        states.status("asleep")


@pytest.mark.parametrize(("word", "meant"), [
    ("queued", ("queued", "paused")), ("paused", ("paused",)), ("cancelled", ("cancelled", "superseded")),
    ("canceled", ("cancelled", "superseded")), ("superseded", ("superseded",)), ("leased", ("leased",)), ("done", ()),
    ("", ()),
])
def test_a_filter_word_means_a_state_or_a_status(word: str, meant: tuple[str, ...]) -> None:
    """E1: lists accept either, and canceled with one l."""
    assert states.states_of(word) == meant


@pytest.mark.parametrize(("state", "verb"), [p for p in PAIRS if p not in MOVES], ids=lambda word: str(word))
def test_every_illegal_pair_has_a_refusal_with_a_stable_code(state: State, verb: Verb) -> None:
    """E1: each refused (state, verb) is an error with a stable code."""
    error = verbs.refusal(state, verb)
    if state in TERMINAL and verb is not Verb.REQUEUE:
        assert error.reason_code == "job_ended"
        assert error.facts["status"] == state
    else:
        assert error.reason_code in {
            "not_paused",
            "not_dead_lettered",
            "not_queued",
            "already_paused",
            "already_running",
            "not_claimed",
            "not_held",
        }
    assert state.value in error.message
