"""The pages say what the code says: states and moves, settings, commands."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from jobs.conf import Conf
from jobs.states import MOVES, State, Verb

ROOT = Path(__file__).resolve().parents[2]
README, SITE = ROOT / "jobs" / "README.md", ROOT / "README.md"


def test_the_table_of_moves_in_the_readme_is_the_table_of_moves() -> None:
    """E1: every row of the page, and nothing else."""
    told: dict[tuple[State, Verb], frozenset[State]] = {}
    for line in README.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1] in set(Verb):
            for state in cells[0].split(", "):
                told[State(state), Verb(cells[1])] = frozenset(State(to) for to in cells[2].split(", "))
    assert told == MOVES


def test_the_table_of_settings_names_every_setting_and_no_other() -> None:
    """B22: what `JOBS` may say, one row or a part of one each."""
    table = README.read_text().partition("| setting | means | default |")[2].partition("\n\n")[0]
    told = [name for row in table.splitlines() if row.startswith("| `")
            for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1])]
    assert sorted(told) == sorted(field.name for field in fields(Conf))


def test_the_readme_of_the_site_names_every_command() -> None:
    """A63: those of `jobs` and of `jobsite`; what a command calls for itself begins with no row."""
    table = SITE.read_text().partition("| command | does |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`manage\.py ([a-z]+)", table))
    made = {path.stem for app in ("jobs", "jobsite") for path in ROOT.glob(f"{app}/management/commands/[a-z]*.py")}
    assert made <= told, made - told
