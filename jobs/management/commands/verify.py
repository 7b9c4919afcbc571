"""`manage.py verify`: every chain of receipts holds and says what its job's row says, or who does not and why."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, TextIO, cast
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils.timezone import is_naive, make_aware

from jobs import clock, selectors
from jobs.errors import JobNotFound, JobsError
from jobs.logs import is_terminal
from jobs.management.progress import Progress
from jobs.services import tenancy, verifying
from jobs.services.verifying import Finding, Selection

WRONG, UNFINISHED = 1, 2
UNITS = {"m": 60, "h": 3_600, "d": 86_400}


class Command(BaseCommand):
    """Exit codes: see the help. Findings on stdout, one a line; how far it is on stderr."""

    help = """Check the receipts of every job against themselves and against its row, and name the first bad one of each
    bad job: `broken prev`, `hash mismatch`, `unreadable`, or `fold differs` with the field and both values. Exit codes:
    0 all is well, 1 something is wrong, 2 the options are wrong or it could not finish."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Which jobs, how thoroughly, and how to say it."""
        parser.add_argument("--job", metavar="ID", help="this one: its id, or a job_id of the caller's")
        parser.add_argument("--workspace", metavar="SLUG", help="those of a workspace")
        parser.add_argument("--tenant", metavar="SUBJECT", help="those of a tenant")
        parser.add_argument("--since", type=_since, metavar="WHEN",
                            help="those made since: 30m, 12h, 7d, or a moment as 2026-11-30T12:00")
        parser.add_argument("--limit", type=_whole, metavar="N", help="at most so many jobs, the oldest first")
        parser.add_argument("--strict", action="store_true",
                            help="also references, payloads, dead letters, gates and lines, which no constraint guards")
        parser.add_argument("--json", action="store_true", help="one JSON object a finding, and one at the end")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look at them all; a refusal is one line."""
        try:
            chosen = _chosen(options)
            kinds = self._audit(chosen, options)
        except JobsError as error:
            raise CommandError(error.message, returncode=UNFINISHED) from None
        except DatabaseError as error:
            raise CommandError(f"It could not be finished: {' '.join(str(error).split())}",
                               returncode=UNFINISHED) from error
        if kinds:
            raise SystemExit(WRONG)

    def _audit(self, chosen: Selection, options: dict[str, Any]) -> Counter[str]:
        begun, jobs, receipts = clock.monotonic(), 0, 0
        kinds: Counter[str] = Counter()
        stderr = cast("TextIO", getattr(self.stderr, "_out", self.stderr))
        progress = Progress(stderr, verifying.count(chosen, options["limit"]), draws=is_terminal(stderr))
        try:
            for batch in verifying.audit(chosen, strict=options["strict"], most=options["limit"]):
                jobs, receipts = jobs + batch.jobs, receipts + batch.receipts
                kinds.update(finding.why for finding in batch.findings)
                if batch.findings:
                    progress.clear()
                    self.stdout.write("\n".join(_line(finding, options["json"]) for finding in batch.findings))
                progress.tell(jobs, f"{kinds.total():,} findings")
        finally:
            progress.clear()
        self.stdout.write(_end(jobs, receipts, kinds, clock.monotonic() - begun, options["json"]))
        return kinds


def _line(found: Finding, as_json: bool) -> str:
    if as_json:
        return json.dumps({"event": "finding", "job": found.job, "attempt": found.attempt, "receipt": found.number,
                           "why": found.why, "said": found.said}, ensure_ascii=True)
    whose = f"job {found.job}" if found.job else f"attempt {found.attempt}"
    # What somebody has put into a row by hand is nothing that a terminal should obey.
    said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in found.said)
    return f"{whose}: {said}" + ("" if found.why in found.said else f" [{found.why}]")


def _end(jobs: int, receipts: int, kinds: Counter[str], seconds: float, as_json: bool) -> str:
    if as_json:
        return json.dumps({"event": "verified", "jobs": jobs, "receipts": receipts, "ok": not kinds,
                           "findings": dict(kinds), "seconds": round(seconds, 3)})
    counted = f"{jobs:,} jobs with {receipts:,} receipts in {seconds:,.1f} s"
    if not kinds:
        return f"verified {counted}: all is well"
    return f"verified {counted}: {', '.join(f'{count:,} x {why}' for why, count in kinds.most_common())}"


def _chosen(said: dict[str, Any]) -> Selection:
    """What the options choose. Raises NotFound for what is not there."""
    named = said["workspace"] is not None or said["tenant"] is not None
    workspace = tenancy.workspace(said["workspace"]) if named else None
    tenant = None if workspace is None or said["tenant"] is None else tenancy.tenant(workspace, said["tenant"])
    since = said["since"]
    return Selection(
        workspace_id=workspace.pk if workspace is not None and tenant is None else None,
        tenant_id=None if tenant is None else tenant.pk,
        since=clock.now() - since if isinstance(since, timedelta) else since,
        job_id=None if said["job"] is None else _job(said))


def _job(said: dict[str, Any]) -> str:
    try:
        # Whatever stands in its row: nothing of it is read here.
        job_id = str(UUID(said["job"]))
    except ValueError:
        within = selectors.scope(tenancy.workspace(said["workspace"]).pk, said["tenant"])
        return str(selectors.job(within, said["job"]).pk)
    if not verifying.count(Selection(job_id=job_id)):
        raise JobNotFound(field="job")
    return job_id


def _whole(said: str) -> int:
    if not said.isascii() or not said.isdigit() or not 0 < int(said[:20]) < 10**12:
        raise argparse.ArgumentTypeError(f"{said!r} is no whole number above 0")
    return int(said)


def _since(said: str) -> datetime | timedelta:
    number, unit = said[:-1], said[-1:]
    if unit in UNITS and number.isascii() and number.isdigit() and len(number) < 6:
        return timedelta(seconds=int(number) * UNITS[unit])
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        at = None
    if at is None or not 1970 < at.year < 9999:
        raise argparse.ArgumentTypeError(f"{said!r} is neither a span as 12h nor a moment as 2026-11-30T12:00")
    return make_aware(at) if is_naive(at) else at
