"""The two options of a command that answers scrapes of Prometheus, and the server behind them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError


def metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """The port and the address."""
    parser.add_argument("--metrics-port", type=int, default=None, metavar="PORT",
                        help="answer scrapes of Prometheus here (extra `metrics`)")
    parser.add_argument("--metrics-address", default="127.0.0.1", metavar="ADDRESS",
                        help="where from: it asks for no token (default 127.0.0.1)")


def serve_metrics(options: dict[str, Any], *, gauges: bool) -> Callable[[], None]:
    """Serve if a port is given; what ends it. Raises CommandError where it cannot."""
    if options["metrics_port"] is None:
        return lambda: None
    # Not before it is asked for: it loads what only scrapes and the console look at.
    from jobs import metrics

    if not metrics.INSTALLED:
        raise CommandError("--metrics-port needs prometheus-client: install the extra `metrics`.")
    try:
        return metrics.serve(options["metrics_port"], options["metrics_address"], gauges=gauges)
    except (OSError, OverflowError) as error:
        raise CommandError(f"--metrics-port {options['metrics_port']} cannot be served: {error}") from error
