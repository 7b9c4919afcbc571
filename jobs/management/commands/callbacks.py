"""Callbacks for operators: what was told, sending it again, secrets, and a look at an address."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import selectors
from jobs.callbacks import names
from jobs.clock import jsonable
from jobs.conf import callback_policy, conf
from jobs.management.operating import named, one_line, person
from jobs.models import CallbackSecret, Delivery, Tenant
from jobs.services import deliveries, signing, tenancy


class Command(BaseCommand):
    """`manage.py callbacks list|show|replay|secret-new|secret-rotate|secret-revoke|secrets|test`."""

    help = "List and repeat callbacks, manage the secrets that sign them, and try an address."

    def add_arguments(self, parser: CommandParser) -> None:
        """One sub-command a verb."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="a tenant's deliveries, newest first")
        listing.add_argument("--status", choices=deliveries.STATES)
        listing.add_argument("--limit", type=int, default=50)
        show = verbs.add_parser("show", help="what is told of a job, with every try")
        show.add_argument("job", help="our id or the caller's job_id")
        replay = verbs.add_parser("replay", help="send an ended delivery again, under the same id")
        replay.add_argument("delivery")
        secrets = [verbs.add_parser("secrets", help="the secrets of a tenant, by their last characters"),
                   verbs.add_parser("secret-new", help="make a secret and print it, once"),
                   verbs.add_parser("secret-rotate", help="the same; of the older ones the newest stays")]
        revoke = verbs.add_parser("secret-revoke", help="end a secret at once")
        revoke.add_argument("secret", type=int, help="its number, as `secrets` says")
        test = verbs.add_parser("test", help="send an empty, signed test to an address, and say what came back")
        test.add_argument("url")
        for parsed in (listing, show, *secrets, revoke, test):
            parsed.add_argument("--workspace", help="slug; default: the site's own")
            parsed.add_argument("--tenant", help="its subject; default: the workspace's own")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do the verb; a refusal is one line."""
        with one_line():
            getattr(self, options["verb"].replace("-", "_"))(options)

    def list(self, said: dict[str, Any]) -> None:
        """A line a delivery."""
        seen = selectors.scope(tenancy.workspace(said["workspace"]).pk, said["tenant"])
        for row in deliveries.page(seen, said["status"], limit=min(max(said["limit"], 1), 1_000)).items:
            self._say(row)

    def show(self, said: dict[str, Any]) -> None:
        """Of one job, with the tries."""
        job = named(said, said["job"])
        self.stdout.write(f"to {job.callback_url or 'the site' if job.callback_events else 'nobody'}"
                          f"  {' '.join(names(job.callback_events))}".rstrip())
        rows = deliveries.of_job(job.pk)
        log = deliveries.tries(rows)
        for row in rows:
            self._say(row)
            for one in log[row.pk]:
                self.stdout.write(f"  {one.number}  {jsonable(one.at)}  {one.http_status or '-'}  {one.ms} ms"
                                  f"  {one.code or 'ok'}  {_line(one.answer)}".rstrip())

    def replay(self, said: dict[str, Any]) -> None:
        """Once more."""
        try:
            pk = uuid.UUID(said["delivery"])
        except ValueError:
            raise CommandError("A delivery is named by its id.") from None
        self._say(deliveries.replay(pk, by=person()))

    def secrets(self, said: dict[str, Any]) -> None:
        """A line a secret."""
        for row in signing.all_of(self._tenant(said).pk):
            self._say_secret(row)

    def secret_new(self, said: dict[str, Any]) -> None:
        """Make one."""
        self._show(*signing.make(self._tenant(said, make=True), by=person()))

    def secret_rotate(self, said: dict[str, Any]) -> None:
        """Make one in place of the oldest."""
        self._show(*signing.rotate(self._tenant(said, make=True), by=person()))

    def secret_revoke(self, said: dict[str, Any]) -> None:
        """End one."""
        self._say_secret(signing.revoke(self._tenant(said), said["secret"], by=person()))

    def test(self, said: dict[str, Any]) -> None:
        """One POST by the rules of callbacks; never with the site's token."""
        try:
            from jobs.services import sending
        except ImportError:
            raise CommandError("This site cannot send callbacks: install the extra `callbacks`.") from None

        target = callback_policy().target(said["url"], "url")
        tenant, body = self._tenant(said), b'{"type":"callback.test"}'
        headers = signing.trial_headers(tenant, body)
        got = sending.post(target, body, {"Content-Type": "application/json", **headers}, callback_policy())
        self.stdout.write(f"{got.code or 'ok'}  {got.status or '-'}  {got.ms} ms  {_line(got.text)}".rstrip())
        if got.code is not None:
            raise CommandError("It was not delivered.")
        if not conf().callbacks:
            self.stderr.write("This site sends no callbacks: JOBS['CALLBACKS'] is off.")

    def _tenant(self, said: dict[str, Any], *, make: bool = False) -> Tenant:
        return tenancy.tenant(tenancy.workspace(said["workspace"]), said["tenant"],
                              make=make and said["tenant"] is not None)

    def _show(self, row: CallbackSecret, shown: str) -> None:
        self.stderr.write(f"Secret {row.pk}. This is shown once; keep it:")
        self.stdout.write(shown)

    def _say(self, row: Delivery) -> None:
        self.stdout.write("  ".join((
            str(row.pk), row.state, row.event, f"job {row.job_id}", f"{row.tries} tries", row.host or "(redacted)",
            str(row.http_status or "-"), "-" if row.ms is None else f"{row.ms} ms", row.code or "")).rstrip())

    def _say_secret(self, row: CallbackSecret) -> None:
        self.stdout.write(f"{row.pk}  \u2026{row.hint}  {'revoked' if row.revoked_at else 'live'}"
                          f"  {jsonable(row.created_at)}  {row.by}")


def _line(text: str | None) -> str:
    """A stranger's words in one line, without what a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in (text or "")[:120]).strip()
