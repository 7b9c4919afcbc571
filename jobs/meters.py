"""What this process has moved, counted in memory after each commit: the source of the rollup and of /metrics.

One vector of whole numbers a (worker group, queue), only ever growing: counts, sums of spans, and spans by powers of
two. Statistics and no truth: a killed process takes along what nobody has read of it (jobs/services/traffic.py).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from jobs import clock

Pair = tuple[str, str]  # worker group, queue
# Attempts end as completed, erred, lapsed, released, interrupted or stopped; jobs as completed, failed, ...
COUNTS = ("enqueued", "claimed", "completed", "erred", "lapsed", "released", "interrupted", "stopped", "failed",
          "cancelled", "superseded", "letters_opened", "letters_answered")
ENDS = ("completed", "erred", "lapsed", "released", "interrupted", "stopped")
SUMS = ("waited_us", "ran_us")
# A span of n microseconds stands in bucket n.bit_length(): below 2**0, 2**1, ... us; the last has no end (25 days).
BUCKETS = 42
WAITED, RAN = (len(COUNTS) + n for n in range(2))
WAITS = len(COUNTS) + len(SUMS)
RUNS = WAITS + BUCKETS
WIDTH = RUNS + BUCKETS
_AT = {name: n for n, name in enumerate(COUNTS)}
# Routing is the site's, so that there are few; a site that makes names up must not fill memory and scrapes.
MOST_PAIRS = 200
OTHERS: Pair = ("(others)", "(others)")

Vector = list[int]


class Meters:
    """The counts of one process. `on_note` is called after each batch and must return at once."""

    def __init__(self) -> None:
        self.on_note: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        """Begin anew: a forked process counts for itself."""
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, Pair], Vector] = {}
        self._took: dict[str, Vector] = {}

    def totals(self) -> dict[tuple[str, Pair], Vector]:
        """All that was counted so far, by database (a test's is not the site's) and pair."""
        with self._lock:
            return {key: list(vector) for key, vector in self._totals.items()}

    def took(self) -> dict[str, Vector]:
        """How long transactions took, by what they did: sum of microseconds, then the buckets."""
        with self._lock:
            return {what: list(vector) for what, vector in self._took.items()}

    def add(self, counts: Sequence[int], spans: int | None, found: dict[Pair, list[int]]) -> None:
        """Raise these counts by one for each span, and note the spans (WAITED or RAN; None: they are none)."""
        base = WAITS if spans == WAITED else RUNS
        database = str(connections[DEFAULT_DB_ALIAS].settings_dict["NAME"])
        with self._lock:
            for pair, many in found.items():
                vector = self._vector(database, pair)
                for at in counts:
                    vector[at] += len(many)
                if spans is not None:
                    vector[spans] += sum(many)
                    for bits, times in Counter(map(int.bit_length, many)).items():
                        vector[base + min(bits, BUCKETS - 1)] += times
        self.on_note()

    def _vector(self, database: str, pair: Pair) -> Vector:
        found = self._totals.get((database, pair))
        if found is None:
            key = (database, pair if len(self._totals) < MOST_PAIRS else OTHERS)
            found = self._totals.setdefault(key, [0] * WIDTH)
        return found

    def note_took(self, what: str, seconds: float) -> None:
        """One transaction that did `what` took so long."""
        us = max(0, int(seconds * 1e6))
        with self._lock:
            vector = self._took.setdefault(what, [0] * (1 + BUCKETS))
            vector[0] += us
            vector[1 + min(us.bit_length(), BUCKETS - 1)] += 1


here = Meters()
os.register_at_fork(after_in_child=here.reset)


def note(counts: Iterable[str], found: Sequence[Any], pair: Callable[[Any], Any],
         span: int | None = None, spans: int | None = None) -> None:
    """Once the present transaction commits, count these rows; `pair` takes group and queue out of one of them.

    `span` is the place of a row's microseconds, noted among `spans` (WAITED or RAN).
    """
    if not found:
        return
    spans_us = list(map(itemgetter(span), found)) if span is not None else [0] * len(found)
    pairs: list[Pair] = list(map(pair, found))
    by_pair: dict[Pair, list[int]] = {}
    if pairs.count(pairs[0]) == len(pairs):
        # Nearly always: one by one would cost more than everything else here.
        by_pair[pairs[0]] = spans_us
    else:
        for key, us in zip(pairs, spans_us, strict=True):
            by_pair.setdefault(key, []).append(us)
    after = partial(here.add, [_AT[name] for name in counts], spans, by_pair)
    transaction.on_commit(after, using=DEFAULT_DB_ALIAS, robust=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Note how long the transaction within took, if it does not raise."""
    began = clock.monotonic()
    yield
    here.note_took(what, clock.monotonic() - began)
