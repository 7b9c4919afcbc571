"""Jobs by hand: list them, enqueue one, wait for its end, and tell it what to do (A63)."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from jobs import clock, codecs, selectors, states
from jobs.api import shapes
from jobs.errors import Invalid, JobsError
from jobs.management.enqueuing import enqueue_arguments, enqueued, json_of
from jobs.management.operating import named, one_line, person
from jobs.models import Job
from jobs.registry import nearest
from jobs.selectors import Filter
from jobs.services import cancellation, commands, tenancy, words
from jobs.states import State

LOOK_S = 0.2
WAIT_S = 120.0
REFUSED, TIMED_OUT, ENDED_OTHERWISE = 1, 3, 4
MOST = 500


class Command(BaseCommand):
    """`manage.py jobs list|show|enqueue|wait|steer|follow-up|abort|cancel|pause|resume`."""

    help = ("Look at jobs and act on them. Exit codes: 0 done; 1 refused, or some were; 2 the options are wrong; of"
            " `wait` also 3: not ended in time, and 4: ended, but not completed.")

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb; `--json` prints one JSON object."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        _listing(verbs.add_parser("list", help="newest first"))
        _one(verbs.add_parser("show", help="one job as it stands"))
        making = verbs.add_parser("enqueue", help="enqueue one job, and print its id")
        enqueue_arguments(making)
        making.add_argument("--json", action="store_true", help="one JSON object")
        waiting = _one(verbs.add_parser("wait", help="wait until a job has ended"))
        waiting.add_argument("--timeout", type=_seconds, default=WAIT_S, metavar="SECONDS", help="default: %(default)g")
        for verb, says in (("steer", "say something to a job that runs or waits"),
                           ("follow-up", "give a job something for when it is through")):
            telling = _one(verbs.add_parser(verb, help=says))
            telling.add_argument("payload", nargs="?", default="null", help="JSON, or - to read it from standard input")
        aborting = _one(verbs.add_parser("abort", help="ask whoever runs a job to stop"))
        aborting.add_argument("--reason", help="why; stands in the receipt")
        for verb, says in (("cancel", "end jobs at once"), ("pause", "put jobs aside"),
                           ("resume", "let paused jobs wait again")):
            acting = _one(verbs.add_parser(verb, help=says), nargs="+")
            acting.add_argument("--reason", help="why; stands in the receipt of each")
            acting.add_argument("--revision", type=_whole, help="only if the job is still at this revision")
            if verb == "resume":
                acting.add_argument("--delay", type=_seconds, metavar="SECONDS", help="not before so long")
                acting.add_argument("--at", type=_moment, metavar="MOMENT", help="not before, as 2030-01-31T12:00:00Z")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, _VERBS[options["verb"]])(options)

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self, said: dict[str, Any]) -> None:
        """A line a job."""
        scope = selectors.scope(tenancy.workspace(said["workspace"]).pk, said["tenant"])
        queue = None if said["queue"] is None else words.queue(said["queue"], said["queue"])
        found = selectors.jobs(scope, Filter(_states(said["status"]), said["type"], queue), limit=said["limit"],
                               cursor=said["cursor"])
        if said["json"]:
            self._json(shapes.page("jobs", found, [shapes.summary(job) for job in found.items]))
            return
        for job in found.items:
            self.stdout.write(_line(job))
        if found.next is not None:
            self.stderr.write(f"There are more: --cursor {found.next}")

    def show(self, said: dict[str, Any]) -> None:
        """One job, as the API shows it."""
        told = shapes.job(named(said, said["id"]))
        if said["json"]:
            self._json(told)
            return
        for name, value in told.items():
            if value not in (None, [], {}):
                self.stdout.write(f"{name:<16} {value if isinstance(value, str) else json.dumps(value)}")

    def wait(self, said: dict[str, Any]) -> None:
        """Look until it has ended."""
        until = clock.monotonic() + said["timeout"]
        job = named(said, said["id"])
        while not job.ended and (left := until - clock.monotonic()) > 0:
            # Nothing of the database is held while waiting.
            connection.close()
            clock.sleep(min(left, LOOK_S))
            job = named(said, str(job.pk))
        self._tell(job, said)
        if not job.ended:
            raise CommandError(f"It has not ended within {said['timeout']:g} s.", returncode=TIMED_OUT)
        if job.state != State.COMPLETED:
            raise CommandError(f"It ended as {job.state}.", returncode=ENDED_OTHERWISE)

    # --- acting -------------------------------------------------------------------------------------------------------

    def enqueue(self, said: dict[str, Any]) -> None:
        """One job; prints its id."""
        done = enqueued(self, said)
        if said["json"]:
            self._json({"id": done.id, "repeated": done.repeated, "warnings": [*done.warnings]})
        else:
            self.stdout.write(done.id)

    def send(self, said: dict[str, Any]) -> None:
        """A steer, a follow-up or an abort."""
        job, kind = named(said, said["id"]), said["verb"].replace("-", "_")
        payload = json_of(said["payload"]) if "payload" in said else None
        commands.send(str(job.pk), kind, payload, by=person(), reason=said.get("reason"), allow_archived=True)
        self._tell(named(said, str(job.pk)), said)

    def act(self, said: dict[str, Any]) -> None:
        """Cancel, pause or resume each; what is refused is told, and the others are done."""
        refused = 0
        for name in said["ids"]:
            try:
                job = named(said, name)
                _act(said, job)
            except JobsError as error:
                refused += 1
                self.stderr.write(f"{codecs.printable(name)}: {error.message} [{error.reason_code}]")
            else:
                self._tell(named(said, str(job.pk)), said)
        if refused:
            raise CommandError(f"{refused} of {len(said['ids'])} refused.", returncode=REFUSED)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self, job: Job, said: dict[str, Any]) -> None:
        if said["json"]:
            self._json(shapes.job(job))
        else:
            self.stdout.write(_line(job))

    def _json(self, told: Any) -> None:
        self.stdout.write(json.dumps(told, ensure_ascii=False))


_VERBS = {"list": "list", "show": "show", "wait": "wait", "enqueue": "enqueue", "cancel": "act", "pause": "act",
          "resume": "act", "steer": "send", "follow-up": "send", "abort": "send"}


def _listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", "--state", help="queued, running, failed, ...")
    parser.add_argument("--type", help="of the job")
    parser.add_argument("--queue", "--lane", dest="queue")
    parser.add_argument("--limit", type=_limit, default=50, help=f"1 to {MOST}; default: %(default)s")
    parser.add_argument("--cursor", help="goes on where a list ended")
    _place(parser)


def _one(parser: Any, **more: Any) -> Any:
    parser.add_argument("ids" if more else "id", help="ours, or a job_id of the caller's", **more)
    _place(parser)
    return parser


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workspace", help="slug; default: the site's own")
    parser.add_argument("--tenant", help="subject; default: no tenant")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _states(word: str | None) -> tuple[str, ...]:
    if word is None:
        return ()
    meant = states.states_of(word)
    if not meant:
        raise Invalid(f"There is no such status{nearest(word, [*State, 'canceled'])}", field="status",
                      code="invalid_status")
    return meant


def _act(said: dict[str, Any], job: Job) -> None:
    told: dict[str, Any] = {"by": person(), "revision": said["revision"]}
    if said["reason"] is not None:
        told["reason"] = said["reason"]
    match said["verb"]:
        case "cancel":
            cancellation.cancel(job.pk, allow_archived=True, **told)
        case "pause":
            cancellation.pause(job.pk, **told)
        case _:
            cancellation.resume(job.pk, available_at=said["at"], delay_s=said["delay"], **told)


def _line(job: Any) -> str:
    why = f" ({codecs.printable(job.reason)})" if job.reason else ""
    name = f"  {job.external_id}" if job.external_id else ""
    return (f"{job.pk}  {job.created_at:%Y-%m-%d %H:%M:%S}Z  {job.type}@{job.version}  {job.queue}  {job.state}{why}"
            f"  r{job.revision}{name}")


def _limit(text: str) -> int:
    number = _whole(text)
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST}")
    return number


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError("must be a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= timedelta(days=366).total_seconds():
        raise argparse.ArgumentTypeError("must be a number of seconds from 0 to 366 days")
    return seconds


def _moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None  # type: ignore[assignment]
    if at is None or at.tzinfo is None:
        raise argparse.ArgumentTypeError("must be a moment like 2030-01-31T12:00:00Z, with its offset")
    return at
