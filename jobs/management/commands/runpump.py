"""`manage.py runpump`: the loops and the house's own jobs in the foreground, and no others, until told to stop."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import DatabaseError

from jobs.checks import pool_fault
from jobs.conf import MAX_SLOTS, conf, lease_faults, registry
from jobs.errors import Invalid, NotFound
from jobs.management.commands import runworker
from jobs.management.metrics import metrics_arguments
from jobs.worker import pump
from jobs.worker.plan import Plan


class Command(runworker.Command):
    """A worker of the group `system` that the loops come first for; drains and ends as any other."""

    help = """Run the loops (timers, recovery, deadlines, repair, retention and the like), send callbacks and tell of
    ends; no other jobs. Every runworker does the same; a pump is for sites whose workers run with --no-loops or only
    over HTTP. Several are safe. SIGTERM or Ctrl-C drains. Exit codes: 0 drained, 1 it could not start, 2 the options
    are wrong."""
    gauges = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of a pump."""
        parser.add_argument("--workspace", action="append", default=[], metavar="SLUG",
                            help="fire timers and tell of ends of this workspace alone; may be said again. What is the "
                                 "whole site's is done all the same, by one process at a time")
        parser.add_argument("--slots", type=int, default=None, help="jobs at once, beside 8 callbacks that are under "
                                                                    "way (default JOBS['SLOTS'])")
        parser.add_argument("--no-listen", action="store_true", help="poll only")
        metrics_arguments(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a line, on a terminal too")
        parser.set_defaults(autoreload=False)

    def _plan(self, options: dict[str, Any]) -> Plan:
        try:
            slots = conf().SLOTS if options["slots"] is None else options["slots"]
            if not 1 <= slots <= MAX_SLOTS:
                raise CommandError(f"--slots must be from 1 to {MAX_SLOTS}.", returncode=runworker.USAGE)
            if faults := [*lease_faults(conf(), registry()), *filter(None, [pool_fault(slots)])]:
                raise CommandError("\n".join(faults))
            return pump.plan(slots, options["workspace"], listen=not options["no_listen"])
        except NotFound as error:
            raise CommandError(f"--workspace: {error.message}", returncode=runworker.USAGE) from error
        except (ImproperlyConfigured, ImportError, Invalid, TypeError) as error:
            raise CommandError(f"The settings cannot be used: {error}") from error
        except DatabaseError as error:
            raise runworker.unusable(error) from error
