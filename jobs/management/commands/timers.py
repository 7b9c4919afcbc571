"""Timers by hand: list, show, put, pause, resume, run, remove, and the next moments of one or of a schedule (D13)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs import clock
from jobs.errors import Invalid
from jobs.management.enqueuing import json_of
from jobs.management.operating import count, one_line, person
from jobs.models import Firing, Tenant, Timer
from jobs.models.timer import CATCH_UPS, OVERLAPS
from jobs.redaction import whole
from jobs.services import tenancy, timers, timetable
from jobs.services.timers import Draft
from jobs.services.timetable import Line

PAGE = 200

class Command(BaseCommand):
    """`manage.py timers list|show|put|pause|resume|run|remove|upcoming`."""

    help = "Timers, which enqueue jobs again and again by a calendar or at an interval."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="a line a timer of a tenant; --all: of the whole site")
        listing.add_argument("--all", action="store_true", help="of every workspace and tenant")
        show = verbs.add_parser("show", help="one timer and its last firings")
        show.add_argument("--firings", type=count, default=10, help="so many; default 10")
        put = verbs.add_parser("put", help="make a timer, or say all of it anew")
        put.add_argument("--type", required=True, help="what kind of job")
        put.add_argument("--input", default="{}", help="a JSON object, or - to read it from standard input")
        put.add_argument("--options", default="{}", help='what an enqueue takes beside, as JSON: {"queue": "chat"}')
        put.add_argument("--version-of-type", type=int, dest="version", help="default: the current one at each moment")
        put.add_argument("--moment-field", help="the field of the input that is given the moment")
        put.add_argument("--catch-up", choices=CATCH_UPS, default="skip", help="of moments that nobody was there for")
        put.add_argument("--catch-up-most", type=count, help="with all: the last so many; default 10")
        put.add_argument("--overlap", choices=OVERLAPS, default="allow", help="while its job before is active")
        _schedule(put)
        pause = verbs.add_parser("pause", help="let its moments pass without a job")
        pause.add_argument("--reason", required=True, help="why; shown wherever the timer is")
        pause.add_argument("--for", dest="for_s", type=float, metavar="SECONDS",
                           help="ends by itself after so many seconds; default: when somebody resumes it")
        resume = verbs.add_parser("resume", help="end a pause; what lay in it is not made up for")
        run = verbs.add_parser("run", help="one job more, now; writes its id")
        run.add_argument("--key", help="the same key again is the same firing")
        run.add_argument("--reason", default="", help="why; kept with the firing")
        remove = verbs.add_parser("remove", help="end it for good; its jobs go on")
        upcoming = verbs.add_parser("upcoming", help="its next moments, or those of an expression that is not kept")
        upcoming.add_argument("--count", type=count, default=5)
        _schedule(upcoming)
        for parsed in (show, put, pause, resume, run, remove):
            parsed.add_argument("name")
        upcoming.add_argument("name", nargs="?")
        for parsed in (listing, show, put, pause, resume, run, remove, upcoming):
            parsed.add_argument("--workspace", help="slug; default: the site's own")
            parsed.add_argument("--tenant", help="whose it is; put makes it if it is new")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"])(options)

    def list(self, said: dict[str, Any]) -> None:
        """A line a timer, in the order in which they were made."""
        if said["all"] and (said["workspace"] or said["tenant"] is not None):
            raise Invalid("is everybody's: say no --workspace and no --tenant", field="--all", code="bad_request")
        tenant_id = None if said["all"] else self._tenant(said).pk
        after = None
        while rows := timers.listing(tenant_id=tenant_id, after=after, limit=PAGE):
            for line in timetable.lines(rows):
                self._say(line, whose=said["all"])
            after = rows[-1].pk

    def show(self, said: dict[str, Any]) -> None:
        """One, and its last firings."""
        row = self._named(said)
        self._say(timetable.lines([row])[0])
        for name in ("type", "version", "input", "options", "cron", "every_s", "zone", "anchor_at", "moment_field",
                     "catch_up", "catch_up_most", "overlap", "declared", "by", "revision"):
            value = getattr(row, name)
            if value is not None:
                self.stdout.write(f"  {name:<14} {_plain(name, value)}")
        for firing in timers.history(row, limit=said["firings"]) if said["firings"] else ():
            self.stdout.write(_fired(firing))

    def put(self, said: dict[str, Any]) -> None:
        """Make it or say it anew."""
        cadence = {name: said[name] for name in ("cron", "every_s", "zone")}
        with _at("input"):
            input_ = json_of(said["input"])
        with _at("options"):
            options = json_of(said["options"])
        draft = Draft(said["type"], input_, options, said["version"], **cadence, moment_field=said["moment_field"],
                      catch_up=said["catch_up"], catch_up_most=said["catch_up_most"], overlap=said["overlap"])
        row = timers.put_for(tenancy.workspace(said["workspace"]), said["tenant"], said["name"], draft, by=person())
        self._say(timetable.lines([row])[0])

    def pause(self, said: dict[str, Any]) -> None:
        """Pause it."""
        row = timers.pause(self._named(said), by=person(), reason=said["reason"],
                           until=timetable.end_of(None, said["for_s"]))
        self._say(timetable.lines([row])[0])

    def resume(self, said: dict[str, Any]) -> None:
        """End its pause."""
        self._say(timetable.lines([timers.resume(self._named(said), by=person())])[0])

    def run(self, said: dict[str, Any]) -> None:
        """Make its job now; the job's id is all that is written."""
        firing = timers.run_now(self._named(said), by=person(), key=said["key"], reason=said["reason"])
        self.stdout.write(str(firing.job_id) if firing.job_id else firing.detail or firing.outcome)

    def remove(self, said: dict[str, Any]) -> None:
        """End it."""
        timers.remove(self._named(said), by=person())
        self.stdout.write("removed")

    def upcoming(self, said: dict[str, Any]) -> None:
        """A line a moment: in UTC, and as the zone's clocks show it."""
        if said["name"] is not None and (said["cron"], said["every_s"]) != (None, None):
            raise Invalid("Say a timer, or a schedule by --cron or --every.", field="name", code="invalid_schedule")
        if said["name"] is not None:
            found = timetable.moments(self._named(said), said["count"])
        else:
            found = timetable.preview(said["cron"], said["every_s"], said["zone"], count=said["count"])[1]
        for one in found:
            self.stdout.write(f"{clock.jsonable(one.at)}  {one.there:%a %Y-%m-%d %H:%M:%S %Z}")
        if not found and said["count"]:
            self.stderr.write("There is no next moment: it is paused without an end, or its schedule has none.")

    @staticmethod
    def _tenant(said: dict[str, Any]) -> Tenant:
        return tenancy.tenant(tenancy.workspace(said["workspace"]), said["tenant"])

    def _named(self, said: dict[str, Any]) -> Timer:
        return timers.get(self._tenant(said).pk, said["name"])

    def _say(self, line: Line, *, whose: bool = False) -> None:
        row = line.timer
        words = [line.state, row.name, row.type, line.words]
        if whose:
            words[1:1] = [line.workspace, f"tenant {line.subject or '(none)'}"]
        if line.paused:
            ends = "until resumed" if row.paused_until is None else f"until {clock.jsonable(row.paused_until)}"
            words.append(f"paused by {row.paused_by} ({row.paused_reason}) {ends}")
        elif row.next_at is not None:
            words.append(f"next {clock.jsonable(row.next_at)}")
        if line.last is not None:
            words.append(f"last {line.last.outcome}{f' ({line.last.code})' if line.last.code else ''}")
        self.stdout.write("  ".join(words))


def _schedule(parser: CommandParser) -> None:
    parser.add_argument("--cron", help='five fields, or a name as @daily: "0 3 * * *"')
    parser.add_argument("--every", type=int, dest="every_s", metavar="SECONDS", help="instead of --cron")
    parser.add_argument("--zone", default="UTC", help="whose clocks --cron means; default UTC")


@contextmanager
def _at(option: str) -> Iterator[None]:
    """What is no JSON is a fault of this option."""
    try:
        yield
    except Invalid as error:
        raise Invalid(f"--{option}: {error.message}", code=error.reason_code) from None


def _plain(name: str, value: Any) -> str:
    """A column for people: secrets by their names left out."""
    if name in ("input", "options"):
        return json.dumps(whole(json.loads(value)), ensure_ascii=False)
    return str(clock.jsonable(value) if isinstance(value, datetime) else value)


def _fired(firing: Firing) -> str:
    words = [f"  {clock.jsonable(firing.moment)}", firing.outcome]
    words += [f"{firing.missed} moments"] if firing.missed else []
    words += [word for word in (firing.code, firing.detail) if word]
    words += [f"job {firing.job_id}"] if firing.job_id else []
    words += [f"by {firing.by}"] if firing.manual else []
    return "  ".join(words)
