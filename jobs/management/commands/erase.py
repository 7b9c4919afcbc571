"""Erasure by hand: one job redacted, a tenant redacted or deleted for good; a dry run says what would go."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import clock
from jobs.management.operating import named, one_line, person
from jobs.models import Erasure, Tenant
from jobs.services import erasure, tenancy
from jobs.services.erasure import Erasures, Foreseen

REFUSED, REFERENCED = 1, 3
PAUSE_S = 0.5
COUNTED = 100_000


class Command(BaseCommand):
    """`manage.py erase job|tenant`. Ends with 0; 1: refused; 3: some rows are referred to and stay."""

    help = ("Redact one job, or redact or delete all of a tenant for good. Exit code 1: refused; 3: something of the "
            "site's refers to rows that stay.")

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a thing."""
        things = parser.add_subparsers(dest="thing", required=True)
        job = things.add_parser("job", help="empty what an ended job says; its receipts stay")
        job.add_argument("id", help="the job's id, or a job_id of the caller's")
        job.add_argument("--tenant", help="where to look for a job_id; default: no tenant")
        tenant = things.add_parser("tenant", help="delete a tenant with everything of its own")
        tenant.add_argument("subject")
        tenant.add_argument("--redact-only", action="store_true",
                            help="empty what its ended jobs say; jobs, receipts and the tenant stay")
        tenant.add_argument("--wait", action="store_true", help="stay and help until it is done")
        for thing in (job, tenant):
            thing.add_argument("--workspace", help="slug; default: the site's own")
            thing.add_argument("--dry-run", action="store_true", help="say what would go and do nothing")
            thing.add_argument("--yes", action="store_true", help="do not ask")
            thing.add_argument("--reason", help="why; kept with the erasure, and in the receipts of redacted jobs")
            thing.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it; a refusal is one line."""
        with one_line():
            getattr(self, options["thing"])(options)

    def job(self, said: dict[str, Any]) -> None:
        """Redact one job."""
        found = named(said, said["id"])
        if said["dry_run"]:
            state = "was redacted already" if not found.input else "can be redacted" if found.ended else \
                f"is {found.state}: cancel it first"
            self._say(said, {"job": str(found.pk), "state": found.state, "redacted": not found.input},
                      f"{found} {state}; nothing was done.")
            return
        reason = self._asked(said, f"Empty what {found} says, for good?")
        done = erasure.redact_job(found.pk, by=person(), reason=reason)
        self._say(said, {"job": done.job_id, "repeated": done.repeated, "number": done.number},
                  f"{done.job_id} {'was redacted already' if done.repeated else 'is redacted'}.")

    def tenant(self, said: dict[str, Any]) -> None:
        """Delete or redact a tenant, or say what would go."""
        tenant = tenancy.tenant(tenancy.workspace(said["workspace"]), said["subject"])
        seen = erasure.foresee(tenant, COUNTED)
        verb = "redact" if said["redact_only"] else "delete"
        if said["dry_run"]:
            self._say(said, _as_json(seen), *_lines(seen), "Nothing was done.")
            return
        if not said["yes"]:
            for line in _lines(seen):
                self.stdout.write(line)
        reason = self._asked(said, f"{verb.capitalize()} all of this for good?")
        begin = erasure.redact_tenant if said["redact_only"] else erasure.delete
        begun = begin(tenant, by=person(), reason=reason)
        if said["wait"]:
            self._carry_on(begun)
        self._report(said, begun)

    def _asked(self, said: dict[str, Any], question: str) -> str:
        if not said["reason"]:
            raise CommandError("Say why with --reason.", returncode=REFUSED)
        if not said["yes"]:
            try:
                answer = input(f"{question} Type yes: ")
            except EOFError:
                answer = ""
            if answer.strip() != "yes":
                raise CommandError("Nothing was done.", returncode=REFUSED)
        return str(said["reason"])

    def _carry_on(self, begun: Erasure) -> None:
        duty = Erasures()
        try:
            while not begun.ended:
                if not duty.carry_on(begun.pk):
                    clock.sleep(PAUSE_S)
                begun.refresh_from_db()
        except KeyboardInterrupt:
            self.stderr.write("It goes on where a worker or a pump runs the loops.")

    def _report(self, said: dict[str, Any], begun: Erasure) -> None:
        begun.refresh_from_db()
        told = erasure.told(begun)
        gone = ", ".join(f"{n:,} {table}" for table, n in sorted(told.counts.items())) or "nothing yet"
        alone = " Nobody runs the loops: start a worker or a pump, or say --wait." if told.word == "alone" else ""
        self._say(said, {"erasure": begun.pk, "verb": begun.verb, "word": told.word, "counts": told.counts},
                  f"Erasure {begun.pk} ({begun.verb}): {told.word}, {gone}.{alone}")
        if begun.end == "referenced":
            raise SystemExit(REFERENCED)

    def _say(self, said: dict[str, Any], told: dict[str, Any], *lines: str) -> None:
        for line in [json.dumps(told, ensure_ascii=False)] if said["json"] else lines:
            self.stdout.write(line)


def _as_json(seen: Foreseen) -> dict[str, Any]:
    return {"tenant": seen.tenant.subject, "counts": seen.counts, "counted_to": seen.most, "active": seen.active,
            "sample": seen.sample, "blocked": seen.blocked}


def _lines(seen: Foreseen) -> list[str]:
    tenant: Tenant = seen.tenant
    lines = [f"Of {tenant.subject} (tenant {tenant.pk}):"]
    lines += [f"{_counted(n, seen.most):>14}  {table}" for table, n in seen.counts.items() if n]
    lines += [f"{_counted(seen.active, seen.most):>14}  jobs are active"] if seen.active else []
    lines += [f"  newest: {id_}" for id_ in seen.sample]
    return lines + [f"  blocked: {why}" for why in seen.blocked]


def _counted(number: int, most: int) -> str:
    return f"over {most:,}" if number > most else f"{number:,}"
