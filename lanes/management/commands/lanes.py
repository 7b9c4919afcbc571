"""Lanes by hand: list and show them, make one, and say where it stands (D8 to D12)."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs.management.operating import one_line
from lanes import selectors
from lanes.actors import Actor
from lanes.api import shapes
from lanes.management import naming
from lanes.models import Lane, LaneReceipt
from lanes.services import lane_jobs, lanes
from lanes.services.lanes import LaneDraft


class Command(BaseCommand):
    """`manage.py lanes list|show|create|state|review|merge|assign|depend|attach --as USER`."""

    help = "Look at lanes and act on them, as a user whose grants decide. LANE is an id, or QUORUM/NAME."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        _listing(verbs.add_parser("list", help="what the user may see, newest first"))
        _making(verbs.add_parser("create", help="make one"))
        lane = {"show": "one as it stands, with its history"} | {
            verb: says for verb, (says, _, _) in _CHANGES.items()} | {"attach": "make a job the lane's"}
        for verb, says in lane.items():
            parsed = verbs.add_parser(verb, help=says)
            parsed.add_argument("lane", metavar="LANE", help="its id, or QUORUM/NAME")
            if verb == "attach":
                parsed.add_argument("job", help="the id of a job of the same workspace")
            if verb in _CHANGES:
                _, word, many = _CHANGES[verb]
                parsed.add_argument("word", metavar=word, nargs="*" if many else None)
                parsed.add_argument("--reason", default="", help="why; stands in its history")
                parsed.add_argument("--version", dest="of", type=naming.whole, metavar="N",
                                    help="only if it is still at this version")
            if verb == "merge":
                parsed.add_argument("--commit", help="7 to 64 hexadecimal digits; merged takes one")
        for parsed in verbs.choices.values():
            naming.acting(parsed)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            verb = options["verb"]
            getattr(self, "change" if verb in _CHANGES else verb)(options, naming.actor(options))

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self, said: dict[str, Any], by: Actor) -> None:
        """A line a lane."""
        narrowed = {name: said[name] for name in ("execution", "review", "merge", "assignee", "cursor", "limit")}
        quorum = naming.quorum(said) if said["quorum"] is not None else None
        found = lanes.listing(by=by, workspace_id=naming.place(said).pk, quorum=quorum, **narrowed)
        if said["json"]:
            work = lane_jobs.standing([row.pk for row in found.items], by=by)
            told = [shapes.lane(row, work[row.pk]) for row in found.items]
            self._json({"lanes": told, "next_cursor": found.next})
            return
        for row in found.items:
            self.stdout.write(_line(row))
        if found.next is not None:
            self.stderr.write(f"There are more: --cursor {found.next}")

    def show(self, said: dict[str, Any], by: Actor) -> None:
        """One, with what its jobs come to and what became of it."""
        name = naming.lane(said)
        row = lanes.get(name, by=by)
        told = shapes.in_full(row, lane_jobs.standing([row.pk], by=by)[row.pk])
        history = lanes.receipts(name, by=by, limit=selectors.MOST).items
        if said["json"]:
            self._json({**told, "receipts": [shapes.receipt(one) for one in history]})
            return
        for field, value in told.items():
            if value not in (None, [], {}, ""):
                self.stdout.write(f"{field:<12} {value if isinstance(value, str) else json.dumps(value)}")
        for one in history:
            self.stdout.write(_told(one))

    # --- acting -------------------------------------------------------------------------------------------------------

    def create(self, said: dict[str, Any], by: Actor) -> None:
        """One more."""
        words = {name: said[name] for name in ("name", "branch", "assignee", "task", "title", "depends_on")}
        draft = LaneDraft(**words, reconcile=naming.reconcile(said["reconcile"]))
        self._tell(lanes.create(naming.quorum(said), draft, by=by), said, by)

    def change(self, said: dict[str, Any], by: Actor) -> None:
        """A move on one of its axes, whose it is, or what it waits for."""
        told: dict[str, Any] = {"by": by, "version": said["of"], "reason": said["reason"]}
        name, word = naming.lane(said), said["word"]
        match said["verb"]:
            case "state":
                row = lanes.set_state(name, word, **told)
            case "review":
                row = lanes.review(name, word, **told)
            case "merge":
                row = lanes.merge(name, word, commit=said["commit"], **told)
            case "assign":
                row = lanes.reassign(name, word, **told)
            case _:
                row = lanes.depend(name, word, **told)
        self._tell(row, said, by)

    def attach(self, said: dict[str, Any], by: Actor) -> None:
        """A job that is there."""
        name = naming.lane(said)
        new = lane_jobs.attach(name, said["job"], by=by)
        if said["json"]:
            self._json({"lane": name, "job_id": said["job"], "repeated": not new})
        else:
            self.stdout.write("attached" if new else "it was the lane's already")

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self, row: Lane, said: dict[str, Any], by: Actor) -> None:
        if said["json"]:
            self._json(shapes.in_full(row, lane_jobs.standing([row.pk], by=by)[row.pk]))
        else:
            self.stdout.write(_line(row))

    def _json(self, told: Any) -> None:
        self.stdout.write(json.dumps(told, ensure_ascii=False))


# What each verb says, what it takes, and whether it takes many.
_CHANGES = {
    "state": ("move its execution", "STATE", False),
    "review": ("submit it, approve it or request changes", "REVIEW", False),
    "merge": ("record what became of its branch", "OUTCOME", False),
    "assign": ("give it to somebody else", "ASSIGNEE", False),
    "depend": ("let it wait for these lanes and no others", "OTHER", True)}


def _listing(parser: Any) -> None:
    parser.add_argument("--quorum", help="its name or id")
    for name, says in (("execution", "open, in_progress, ..."), ("review", "none, submitted, ..."),
                       ("merge", "none, merged, ..."), ("assignee", "as user:ann")):
        parser.add_argument(f"--{name}", help=says)
    parser.add_argument("--limit", type=naming.whole, default=selectors.LIMIT, help="default: %(default)s")
    parser.add_argument("--cursor", help="goes on where a list ended")


def _making(parser: Any) -> None:
    parser.add_argument("quorum", metavar="QUORUM", help="its name or id")
    parser.add_argument("name", metavar="NAME", help="once in its quorum")
    parser.add_argument("--branch", required=True, help="as git has it")
    parser.add_argument("--task", required=True, help="its one task thread, an address or a name")
    parser.add_argument("--assignee", required=True, help="user:NAME or key:PREFIX, an assignee or conductor")
    parser.add_argument("--title", default="", help="for people")
    parser.add_argument("--depends-on", nargs="*", default=(), metavar="LANE", help="lanes of the same quorum")
    parser.add_argument("--reconcile", metavar="JSON", help='the job that puts it right: {"type": ..., "input": {}}')


def _line(row: Lane) -> str:
    return (f"{row.pk}  {row.quorum.name}/{row.name}  {row.execution}  review {row.review}  merge {row.merge}"
            f"  {row.assignee}  {row.branch}  v{row.version}")


def _told(one: LaneReceipt) -> str:
    change = " > ".join(word for word in (one.before, one.after) if word)
    commit, why = f" at {one.commit}" if one.commit else "", f" ({one.reason})" if one.reason else ""
    return f"{one.number:>5}  {one.at:%Y-%m-%d %H:%M:%S}Z  {one.kind}  {change}{commit}  by {one.by}{why}"
