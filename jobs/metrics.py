"""`/metrics` for Prometheus: what this process has moved, and what the database says of the whole site.

The first is in memory (`jobs.meters`); the second is looked at every five seconds at most, aside, so that a database
that is away costs a scrape its gauges and nothing else. Needs the extra `metrics`; without it the rest works.
"""

from __future__ import annotations

import hmac
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from jobs import clock, meters
from jobs.conf import conf
from jobs.models.permissions import Permission
from jobs.selectors import TooSlow
from jobs.services import fleet, overview
from jobs.services.fleet import Leading
from jobs.services.overview import Overview

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

INSTALLED = importlib.util.find_spec("prometheus_client") is not None
FRESH_S = 5.0
# Less than a scrape is given, also where a lost database answers nothing.
PATIENCE_S = 3.0
# Upper bounds of histograms, as powers of two of a microsecond: 1 ms, 4 ms, 16 ms, ... 19 h.
BOUNDS = range(10, 38, 2)
PAIR = ("worker_group", "queue")
Seen = tuple[Overview, Sequence[Leading]]


def registry(*, gauges: bool = True) -> CollectorRegistry:
    """What a scrape of this process is told; `gauges`: with the database's."""
    from prometheus_client import CollectorRegistry

    made = CollectorRegistry(auto_describe=False)
    made.register(Counted())
    if gauges:
        made.register(_gauges)
    return made


class Counted:
    """What this process has moved since it began."""

    def collect(self) -> Iterator[Metric]:
        """Every family, of the site's own database alone."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        name = str(connections[DEFAULT_DB_ALIAS].settings_dict["NAME"])
        totals = {pair: vector for (database, pair), vector in meters.here.totals().items() if database == name}
        for metric, said, counts, label in _COUNTERS:
            counter = CounterMetricFamily(metric, said, labels=[*PAIR, *([label] if label else [])])
            for pair, vector in totals.items():
                for count, value in counts.items():
                    counter.add_metric([*pair, *([value] if label else [])], vector[meters.COUNTS.index(count)])
            yield counter
        for metric, said, spans, at in _HISTOGRAMS:
            histogram = HistogramMetricFamily(metric, said, labels=PAIR)
            for pair, vector in totals.items():
                histogram.add_metric(pair, _buckets(vector[at:at + meters.BUCKETS]), vector[spans] / 1e6)
            yield histogram
        took = HistogramMetricFamily("jobs_transaction_seconds", "Transactions that claim or settle, a batch each.",
                                     labels=["operation"])
        for what, vector in meters.here.took().items():
            took.add_metric([what], _buckets(vector[1:]), vector[0] / 1e6)
        yield took


_COUNTERS: list[tuple[str, str, dict[str, str], str | None]] = [
    ("jobs_enqueued", "Jobs enqueued.", {"enqueued": ""}, None),
    ("jobs_claimed", "Attempts begun.", {"claimed": ""}, None),
    ("jobs_attempts_ended", "Attempts ended.",
     {name: "failed" if name == "erred" else name for name in meters.ENDS}, "outcome"),
    ("jobs_ended", "Jobs that reached an end.",
     {name: name for name in ("completed", "failed", "cancelled", "superseded")}, "state"),
    ("jobs_dead_letters_opened", "Dead letters opened.", {"letters_opened": ""}, None),
    ("jobs_dead_letters_answered", "Dead letters requeued or discarded.", {"letters_answered": ""}, None),
]
_HISTOGRAMS = [
    ("jobs_wait_seconds", "From when a job could be claimed until it was.", meters.WAITED, meters.WAITS),
    ("jobs_run_seconds", "From claim to end of an attempt.", meters.RAN, meters.RUNS),
]


def _buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus wants them."""
    found: list[tuple[str, float]] = [(repr(2**n / 1e6), sum(counts[: n + 1])) for n in BOUNDS]
    return [*found, ("+Inf", sum(counts))]


class Gauges:
    """What the database says of the site, at most five seconds old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Look anew the next time."""
        self._seen: Seen | None = None
        self._at = 0.0
        self._looking: threading.Thread | None = None

    def seen(self) -> Seen | None:
        """The latest look; None where the database has not answered in time."""
        with self._lock:
            if self._looking is None and clock.monotonic() - self._at > FRESH_S:
                self._seen = None
                self._looking = threading.Thread(target=self._look, name="jobs-metrics", daemon=True)
                self._looking.start()
            looking = self._looking
        if looking is not None:
            looking.join(PATIENCE_S)
        return self._seen

    def _look(self) -> None:
        seen = None
        try:
            seen = overview.look(), fleet.duties()
        except (Error, OSError, TooSlow):
            # Said by jobs_up, and tried again by the next scrape.
            pass
        finally:
            self._seen, self._at, self._looking = seen, clock.monotonic() if seen else 0.0, None
            connections[DEFAULT_DB_ALIAS].close()

    def collect(self) -> Iterator[Metric]:
        """Every family; with a database that is away jobs_up alone."""
        from prometheus_client.core import GaugeMetricFamily

        seen = self.seen()
        yield GaugeMetricFamily("jobs_up", "Whether the database answers.", value=int(seen is not None))
        if seen is not None:
            yield from _of_site(*seen)


_gauges = Gauges()


def _of_site(seen: Overview, duties: Sequence[Leading]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    families: list[tuple[str, str, Callable[[overview.Line], float]]] = [
        ("jobs_waiting", "Claimable jobs, counted up to 1,000.", lambda x: x.waiting.number),
        ("jobs_scheduled", "Jobs that are not due, of the next 1,000.", lambda x: x.scheduled.number),
        ("jobs_running", "Live attempts.", lambda x: x.running),
        ("jobs_oldest_claimable_seconds", "How long the oldest claimable job has been so.",
         lambda x: max(0.0, (seen.now - x.oldest).total_seconds()) if x.oldest else 0.0),
        ("jobs_unserved", "Whether claimable jobs wait where nobody alive would take them.",
         lambda x: int(x.unserved is not None)),
    ]
    for name, said, value in families:
        gauge = GaugeMetricFamily(name, said, labels=PAIR)
        for line in seen.lines:
            gauge.add_metric((line.worker_group, line.queue), value(line))
        yield gauge
    yield GaugeMetricFamily("jobs_dead_letters_open", "Open dead letters, counted up to 10,000.",
                            value=seen.letters.number)
    yield GaugeMetricFamily("jobs_workers", "Live workers.", value=seen.workers)
    yield GaugeMetricFamily("jobs_slots", "Slots of live workers.", value=seen.slots)
    yield GaugeMetricFamily("jobs_slots_busy", "Slots that run a job.", value=seen.busy)
    age = GaugeMetricFamily("jobs_duty_age_seconds", "Since the last round of a periodic duty.", labels=["duty"])
    for one in duties:
        if one.leader.ticked_at is not None:
            age.add_metric([one.leader.duty], max(0.0, (seen.now - one.leader.ticked_at).total_seconds()))
    yield age
    yield from _of_pool()


def _of_pool() -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    pool: Any = getattr(connections[DEFAULT_DB_ALIAS], "pool", None)
    if pool is not None:
        stats = pool.get_stats()
        gauge = GaugeMetricFamily("jobs_database_pool", "Connections of this process's pool.", labels=["state"])
        gauge.add_metric(["open"], stats.get("pool_size", 0))
        gauge.add_metric(["idle"], stats.get("pool_available", 0))
        gauge.add_metric(["asked_for"], stats.get("requests_waiting", 0))
        yield gauge


# --- the doors ------------------------------------------------------------------------------------------------------


@require_safe
def view(request: HttpRequest) -> HttpResponse:
    """`GET /metrics` for whoever has the token (`JOBS["METRICS_TOKEN"]`) or is signed in and may view jobs."""
    refused = _refused(request)
    if refused is not None:
        return refused
    from prometheus_client.exposition import choose_encoder

    encode, kind = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry()), content_type=kind, headers={"Cache-Control": "no-store"})


def _refused(request: HttpRequest) -> HttpResponse | None:
    if not INSTALLED:
        return HttpResponse("Install the extra `metrics` of jobsite.\n", status=501, content_type="text/plain")
    said = request.headers.get("Authorization", "")
    token = conf().METRICS_TOKEN
    # Of bytes: text that is not ASCII is refused, and not an error.
    if token and hmac.compare_digest(said.encode(), f"Bearer {token}".encode()):
        return None
    try:
        known = bool(not said and hasattr(request, "user") and request.user.has_perm(Permission.VIEW.label))
    except (Error, OSError):
        return HttpResponse("The database is away; with the token there would be an answer.\n", status=503,
                            content_type="text/plain", headers={"Retry-After": "5"})
    if known:
        return None
    return HttpResponse("A bearer token is needed: JOBS['METRICS_TOKEN'].\n", status=401, content_type="text/plain",
                        headers={"WWW-Authenticate": 'Bearer realm="metrics"', "Cache-Control": "no-store"})


def serve(port: int, address: str, *, gauges: bool) -> Callable[[], None]:
    """Answer scrapes in a thread of this process, without a token: the address is the guard; what ends it.

    Raises OSError where the port is taken, ImportError without prometheus-client.
    """
    from prometheus_client import start_http_server

    server, thread = start_http_server(port, address, registry(gauges=gauges))

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5)

    return end
