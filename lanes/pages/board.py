"""The board: lanes by how far they are, newest first; and one column of it, page by page."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest

from jobs.selectors import TooSlow
from jobs.sightings import patiently
from lanes import selectors, sightings
from lanes.actors import Actor
from lanes.axes import Execution
from lanes.models import Lane, Quorum
from lanes.pages.access import LanePage, id_of
from lanes.pages.tracks import words
from lanes.selectors import Work

CARDS, WHOLE = 20, 60
WORDS = ("quorum", "assignee", "mine", "execution", "before")


class Card(NamedTuple):
    """A lane as the board shows it; `work` is what its jobs do, None where there was no time to look."""

    lane: Lane
    work: Work | None
    mine: bool


class Column(NamedTuple):
    """One state: its newest lanes, and the query of those behind them."""

    execution: Execution
    label: str
    cards: list[Card]
    more: str

    @property
    def many(self) -> str:
        """How many are shown, and whether there are more."""
        return f"{len(self.cards)}{'+' if self.more else ''}"


class Board(LanePage):
    """`/lanes/`; `?execution=done` one column of it, and `&before=...` further back."""

    template_name = "lanes/board.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """What the reader may see. Raises QuorumNotFound for a quorum that is not theirs, as for none."""
        said = read(self.request)
        quorums, quorum = patiently(lambda: self._quorums(said.get("quorum")))
        return super().get_context_data(
            said=said, quorums=quorums, quorum=quorum, narrowed=bool(set(said) & {"quorum", "assignee", "mine"}),
            conducts=bool(self.conducted), several=len(self.roles) > 1, whole=_query(said, "execution"),
            **columns(self, said, quorum), **kwargs)

    def _quorums(self, named: str | None) -> tuple[list[Quorum], Quorum | None]:
        return (selectors.quorums(by=self.actor, closed=False, limit=sightings.CHOICES).items,
                selectors.quorum(named, by=self.actor) if named else None)


def read(request: HttpRequest) -> dict[str, str]:
    """What the URL narrows the board to; a state that there is not narrows nothing."""
    said = {name: request.GET.get(name, "").replace("\x00", "").strip()[:400] for name in WORDS}
    if said["execution"] not in set(Execution):
        said["execution"] = said["before"] = ""
    return {name: word for name, word in said.items() if word}


def columns(page: LanePage, said: dict[str, str], quorum: Quorum | None) -> dict[str, Any]:
    """The columns that are asked for, with what stands on their cards, and the sum of it in words."""
    by, one = page.actor, "execution" in said
    states = [Execution(said["execution"])] if one else list(Execution)
    mine = page.roles if quorum is None else [quorum.workspace_id]
    found = patiently(lambda: sightings.board(mine, states, _narrowed(by, said, quorum), most=WHOLE if one else CARDS,
                                              before=id_of(said.get("before"))))
    work = _work([lane for shown in found.values() for lane in shown.rows], by)
    built = [Column(state, words(state), [_card(lane, work, by) for lane in shown.rows],
                    _more(said, state, shown.older)) for state, shown in found.items()]
    return {"columns": built, "one": one, "hasty": work is None, "empty": not any(column.cards for column in built),
            "sum": ", ".join(f"{column.many} {column.label}" for column in built)}


def _narrowed(by: Actor, said: dict[str, str], quorum: Quorum | None) -> dict[str, Any]:
    assignee = by.name if "mine" in said else said.get("assignee")
    narrowed = {"quorum_id": quorum.pk if quorum else None, "assignee": assignee}
    return {name: value for name, value in narrowed.items() if value}


def _work(lanes: list[Lane], by: Actor) -> dict[Any, Work] | None:
    """What the jobs of these lanes do; None where that takes too long: the lanes are shown all the same."""
    try:
        return patiently(lambda: selectors.work([lane.pk for lane in lanes], by=by))
    except TooSlow:
        return None


def _card(lane: Lane, work: dict[Any, Work] | None, by: Actor) -> Card:
    return Card(lane, work.get(lane.pk) if work is not None else None, lane.assignee_user == by.user_id)


def _query(said: dict[str, str], *without: str) -> str:
    return urlencode({name: word for name, word in said.items() if name not in ("before", *without)})


def _more(said: dict[str, str], state: Execution, older: Any) -> str:
    if older is None:
        return ""
    # From the board to the whole column, and from a page of that to the next.
    query = _query({**said, "execution": state.value})
    return f"{query}&before={older}" if "execution" in said else query
