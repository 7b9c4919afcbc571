"""The page that explains the states says what the table of moves says."""

from __future__ import annotations

from pathlib import Path

from jobs.states import MOVES, State, Verb

README = Path(__file__).resolve().parents[2] / "jobs" / "README.md"


def test_the_table_of_moves_in_the_readme_is_the_table_of_moves() -> None:
    """E1: every row of the page, and nothing else."""
    told: dict[tuple[State, Verb], frozenset[State]] = {}
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1] in set(Verb):
            for state in cells[0].split(", "):
                told[State(state), Verb(cells[1])] = frozenset(State(to) for to in cells[2].split(", "))
    assert told == MOVES
