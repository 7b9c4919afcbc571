"""`manage.py runpump`: run the periodic duties in the foreground, and no jobs, until told to stop."""

from __future__ import annotations

import argparse
import signal
from typing import Any, TextIO, cast

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from jobs.logs import asks_json
from jobs.management.metrics import metrics_arguments, serve_metrics
from jobs.worker.logs import logging_to
from jobs.worker.output import Output
from jobs.worker.pump import Pump


class Command(BaseCommand):
    """Exit codes: 0 when it was told to stop, 1 when it could not start, 2 for options that it does not know."""

    help = ("Run the loops: recovery, deadlines, repair, retention and the like. Every runworker does, one leader a "
            "duty; a pump is for sites whose workers run with --no-loops or only over HTTP. SIGTERM or Ctrl-C ends it.")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options of a pump."""
        metrics_arguments(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a line, on a terminal too")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, start, and go on until stopped."""
        output = Output(cast("TextIO | None", getattr(self.stdout, "_out", None)),
                        as_json=True if options["json"] else asks_json(), level=options["verbosity"])
        try:
            pump = Pump(output)
        except DatabaseError as error:
            raise CommandError(f"The database cannot be used: {str(error).strip().splitlines()[0]}\n"
                               "Is it up, and migrated (manage.py migrate)?") from error
        end_metrics = serve_metrics(options, gauges=True)
        # The handlers only note and ring: nothing is ever raised into a transaction.
        before = {name: signal.signal(name, lambda *_: pump.ask_stop()) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            with logging_to(output):
                pump.run()
        finally:
            end_metrics()
            for name, handler in before.items():
                signal.signal(name, handler)
            output.close()
