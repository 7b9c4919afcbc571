"""Leases of periodic duties: who does each, until when, and when it was done last.

Every call is one statement in autocommit that waits for nobody: no session state, so it works through a transaction
pooler, and a process that is frozen holds no row that others need.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from django.db import connections

from jobs.store.sql import ALIAS, NotInTransaction, array, packed, rows, run

RECOVERY = "recovery"
_MAKE = f"INSERT INTO jobs_leader (duty) SELECT * FROM unnest({array('text')}) ON CONFLICT (duty) DO NOTHING"
# A lease that ends later than any of ours could was written by a clock that has been set back since.
_TAKE = f"""WITH asked AS MATERIALIZED (
        SELECT * FROM unnest({array('text')}, {array('bigint')}, {array('boolean')}) u(duty, lease_ms, ticked)),
    free AS MATERIALIZED (SELECT l.duty, a.lease_ms, a.ticked FROM jobs_leader l JOIN asked a ON a.duty = l.duty
        WHERE l.holder = %s OR l.until IS NULL OR l.until <= jobs_now()
            OR l.until > jobs_now() + 2 * a.lease_ms * interval '1 ms'
        FOR NO KEY UPDATE OF l SKIP LOCKED),
    taken AS (UPDATE jobs_leader l SET holder = %s, until = jobs_now() + free.lease_ms * interval '1 ms',
            ticked_at = CASE WHEN free.ticked THEN jobs_now() ELSE l.ticked_at END
        FROM free WHERE l.duty = free.duty RETURNING l.duty)
    SELECT l.duty, taken.duty IS NOT NULL FROM jobs_leader l JOIN asked ON asked.duty = l.duty
    LEFT JOIN taken ON taken.duty = l.duty WHERE taken.duty IS NOT NULL OR l.holder IS DISTINCT FROM %s"""
_GIVE_BACK = "UPDATE jobs_leader SET holder = NULL, until = NULL WHERE holder = %s"


def make(duties: Sequence[str]) -> None:
    """The rows of these duties, as far as they are missing."""
    run(_MAKE, [packed(duties)])


def take(holder: uuid.UUID, leases: Mapping[str, float], ticked: set[str]) -> dict[str, bool]:
    """Renew what this holder leads of these duties (leases in seconds) and take what nobody leads.

    True for each that is ours from now on, False for what another leads; one that somebody just writes is left out.
    `ticked` are those that were done since the last call; recovery notes its rounds itself, since it judges by them.
    """
    noted = [duty in ticked and duty != RECOVERY for duty in leases]
    columns = [packed(leases), packed([int(s * 1000) for s in leases.values()]), packed(noted)]
    return dict(rows(_TAKE, [*columns, holder, holder, holder]))


def give_back(holder: uuid.UUID) -> None:
    """Let others take at once what this holder leads."""
    run(_GIVE_BACK, [holder])


# One statement: a process that is frozen between two would keep the row locked, and the fleet without recovery.
# A gap while it stands still is another outage; the third in a row is somebody who ticks rarely (C35).
_TICK = """WITH spans AS (SELECT %s::bigint * interval '1 us' AS quiet, %s::bigint * interval '1 us' AS gap),
    mine AS MATERIALIZED (SELECT l.duty, spans.quiet, CASE
            WHEN l.hold_until > jobs_now() THEN 'holding'
            WHEN l.ticked_at IS NULL OR jobs_now() - l.ticked_at <= spans.gap
                + CASE WHEN l.hold_until IS NULL THEN interval '0' ELSE spans.quiet END THEN 'going'
            WHEN l.hold_until IS NOT NULL AND l.holds >= {most} THEN 'going'
            ELSE 'gap' END AS verdict
        FROM jobs_leader l, spans WHERE l.duty = 'recovery' {others}
        FOR NO KEY UPDATE OF l SKIP LOCKED),
    first AS (INSERT INTO jobs_leader (duty, ticked_at) SELECT 'recovery', jobs_now()
        WHERE NOT EXISTS (SELECT 1 FROM jobs_leader l WHERE l.duty = 'recovery')
        ON CONFLICT (duty) DO NOTHING RETURNING true),
    noted AS (UPDATE jobs_leader l SET ticked_at = jobs_now(),
            hold_until = CASE mine.verdict WHEN 'going' THEN NULL WHEN 'gap' THEN jobs_now() + mine.quiet
                -- A clock that was set back never makes it longer.
                ELSE least(l.hold_until, jobs_now() + mine.quiet) END,
            holds = CASE mine.verdict WHEN 'going' THEN 0 WHEN 'gap' THEN l.holds + 1 ELSE l.holds END
        FROM mine WHERE l.duty = mine.duty RETURNING mine.verdict = 'going')
    SELECT * FROM noted UNION ALL SELECT * FROM first"""
_UNLESS_LED = """AND NOT (l.until > jobs_now() AND l.until < jobs_now() + 2 * spans.gap
    AND l.ticked_at <= jobs_now() AND l.ticked_at > jobs_now() - spans.gap)"""
MOST_HOLDS = 2


def tick_recovery(quiet_us: int, gap_us: int, *, aside: bool = False) -> bool:
    """Note a round of recovery, whoever does it, and say whether it may go on (E8).

    After a gap in the fleet's rounds, or a forward jump of the clock, which looks the same, it stands still for the
    quiet span. `aside`: not at all while a leader is at it. No to whoever meets another at the row: that one goes on.
    """
    if connections[ALIAS].in_atomic_block:
        raise NotInTransaction("Recovery commits by itself and cannot run inside a transaction.")
    sql = _TICK.format(most=MOST_HOLDS, others=_UNLESS_LED if aside else "")
    found = rows(sql, [quiet_us, gap_us])
    return bool(found and found[0][0])
