"""Enqueue one job by hand; prints its id."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from jobs import codecs
from jobs.errors import Invalid, JobsError
from jobs.services import intake, tenancy
from jobs.services.draft import Door

DOOR = Door("manage.py enqueue", "user", "command:enqueue")


class Command(BaseCommand):
    """`manage.py enqueue TYPE [INPUT]`."""

    help = "Enqueue one job and print its id."

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of a request."""
        parser.add_argument("type", help="what kind of job")
        parser.add_argument("input", nargs="?", default="{}", help="a JSON object, or - to read it from standard input")
        parser.add_argument("--queue", help="default: the definition's")
        parser.add_argument("--priority", type=int, help="-100 to 100, higher first")
        parser.add_argument("--version-of-type", type=int, dest="version_of_type", help="default: the current one")
        parser.add_argument("--delay", type=float, help="seconds until it may run")
        parser.add_argument("--key", help="idempotency key: the same request again makes no second job")
        parser.add_argument("--job-id", help="an id of your own")
        parser.add_argument("--target", help="what it is about; supersedes older jobs about the same")
        parser.add_argument("--group", help="exclusive group")
        parser.add_argument("--deadline", type=float, help="seconds from its first start until it must have ended")
        parser.add_argument("--tenant", help="whose work it is; made if it is new")
        parser.add_argument("--workspace", help="slug; default: the site's own")
        parser.add_argument("--retry-none", action="store_true", help="never again after a reported failure")

    def handle(self, *args: Any, **options: Any) -> None:
        """Enqueue; a refusal is one line."""
        try:
            done = intake.enqueue(options["type"], _input(options["input"]), door=DOOR, **_options(options))
        except JobsError as error:
            raise CommandError(_line(error)) from None
        except OperationalError as error:
            raise CommandError(f"The database cannot be reached: {str(error).splitlines()[0]}") from None
        for warning in done.warnings:
            self.stderr.write(f"warning: {warning['message']}")
        if done.repeated:
            self.stderr.write("An earlier request has already made this job.")
        self.stdout.write(done.id)


def _input(said: str) -> Any:
    most = codecs.MAX_PAYLOAD_BYTES
    raw = sys.stdin.buffer.read(most + 1) if said == "-" else said.encode("utf-8", "surrogateescape")
    return codecs.parse(raw, max_bytes=most)


def _options(said: dict[str, Any]) -> dict[str, Any]:
    if said["tenant"] is not None:
        tenancy.check_subject(said["tenant"])
    told = {"queue": said["queue"], "priority": said["priority"], "version": said["version_of_type"],
            "delay_s": said["delay"], "idempotency_key": said["key"], "job_id": said["job_id"],
            "target": said["target"], "exclusive_group": said["group"], "deadline_s": said["deadline"],
            "tenant": said["tenant"], "workspace": said["workspace"]}
    return {**told, "retry": None} if said["retry_none"] else told


def _line(error: JobsError) -> str:
    faults = error.faults if isinstance(error, Invalid) else []
    if len(faults) > 1 or (faults and faults[0]["message"] == error.message):
        return "; ".join(f"{fault['field'] or 'input'}: {fault['message']}" for fault in faults)
    return error.message
