"""What `manage.py enqueue` and `manage.py jobs enqueue` share: the options of a request by hand."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from jobs import codecs
from jobs.management.operating import one_line
from jobs.services import agents, intake, tenancy
from jobs.services.draft import Door
from jobs.services.intake import Enqueued

DOOR = Door("manage.py enqueue", "user", "command:enqueue")


def enqueue_arguments(parser: CommandParser) -> None:
    """The options of a request."""
    parser.add_argument("type", help="what kind of job")
    parser.add_argument("input", nargs="?", default="{}", help="a JSON object, or - to read it from standard input")
    parser.add_argument("--queue", "--lane", dest="queue", help="default: the definition's")
    parser.add_argument("--priority", type=int, help="-100 to 100, higher first")
    parser.add_argument("--version-of-type", type=int, dest="version_of_type", help="default: the current one")
    parser.add_argument("--delay", type=float, help="seconds until it may run")
    parser.add_argument("--key", help="idempotency key: the same request again makes no second job")
    parser.add_argument("--job-id", help="an id of your own")
    parser.add_argument("--agent", help="whose job it is; routes it")
    parser.add_argument("--session-key", help="names a session, for --singleton")
    parser.add_argument("--singleton", metavar="MODE", help="what becomes of active jobs of the session: allow, cancel,"
                        " steer")
    parser.add_argument("--target", help="what it is about; supersedes older jobs about the same")
    parser.add_argument("--group", help="exclusive group")
    parser.add_argument("--deadline", type=float, help="seconds from its first start until it must have ended")
    parser.add_argument("--tenant", help="whose work it is; made if it is new")
    parser.add_argument("--workspace", help="slug; default: the site's own")
    parser.add_argument("--retry-none", action="store_true", help="never again after a reported failure")


def enqueued(command: BaseCommand, said: dict[str, Any]) -> Enqueued:
    """Enqueue one job; warnings go to stderr. Raises CommandError."""
    with one_line():
        done = intake.enqueue(said["type"], json_of(said["input"]), door=DOOR, **_options(said))
    for warning in done.warnings:
        command.stderr.write(f"warning: {warning['message']}")
    if done.repeated:
        command.stderr.write("An earlier request has already made this job.")
    return done


def json_of(said: str) -> Any:
    """The value of a JSON text, or of standard input for `-`. Raises Invalid."""
    most = codecs.MAX_PAYLOAD_BYTES
    raw = sys.stdin.buffer.read(most + 1) if said == "-" else said.encode("utf-8", "surrogateescape")
    return codecs.parse(raw, max_bytes=most)


def _options(said: dict[str, Any]) -> dict[str, Any]:
    if said["tenant"] is not None:
        tenancy.check_subject(said["tenant"])
    told = {"queue": said["queue"], "priority": said["priority"], "version": said["version_of_type"],
            "delay_s": said["delay"], "idempotency_key": said["key"], "job_id": said["job_id"],
            "target": said["target"], "exclusive_group": said["group"], "deadline_s": said["deadline"],
            "tenant": said["tenant"], "workspace": said["workspace"], "agent": said["agent"],
            **agents.singleton(said["singleton"], said["session_key"], None)}
    return {**told, "retry": None} if said["retry_none"] else told
