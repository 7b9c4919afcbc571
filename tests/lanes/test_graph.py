"""Lanes that wait for lanes: circles are found, by whichever way they close. No database."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lanes.graph import circle


def test_a_circle_is_told_from_the_lane_to_itself() -> None:
    """D8: over any number of lanes, and the shortest of all."""
    assert circle("a", ["a"], {}) == ["a", "a"]
    assert circle("a", ["b"], {"b": ["a"]}) == ["a", "b", "a"]
    assert circle("a", ["x", "b"], {"b": ["c"], "c": ["d", "x"], "d": ["a"]}) == ["a", "b", "c", "d", "a"]
    assert circle("a", ["b", "c"], {"b": ["d"], "c": ["d"], "d": []}) is None
    assert circle("a", [], {"b": ["a"]}) is None


def test_a_chain_of_a_hundred_thousand_is_walked_without_recursion() -> None:
    """D8: no depth is too deep."""
    edges = {n: [n + 1] for n in range(1, 100_000)}
    assert circle(0, [1], edges) is None
    assert len(circle(0, [1], {**edges, 100_000: [0]}) or ()) == 100_002


def _reaches(start: int, goal: int, edges: dict[int, list[int]]) -> bool:
    seen, waiting = set(), {start}
    while waiting:
        here = waiting.pop()
        if here == goal:
            return True
        seen.add(here)
        waiting |= set(edges.get(here, ())) - seen
    return False


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(1, 7), st.lists(st.integers(0, 7), max_size=4)), st.lists(st.integers(1, 7)))
def test_there_is_a_circle_if_and_only_if_one_of_them_leads_back(edges: dict[int, list[int]], on: list[int]) -> None:
    """D8, against a walk written differently; the circle that is told is one."""
    found = circle(0, on, edges)
    assert (found is not None) is any(_reaches(one, 0, edges) for one in on)
    if found is not None:
        assert found[0] == found[-1] == 0
        assert found[1] in on or found == [0, 0]
        assert all(b in edges[a] for a, b in pairwise(found[1:]))
