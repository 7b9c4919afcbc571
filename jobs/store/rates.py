"""The bucket of tokens in a key's row, in one statement: fill it up by the time that passed, take what is there."""

from __future__ import annotations

from jobs.store.sql import rows

# A clock that was put back fills nothing and moves the mark with it; one that jumped ahead fills it once.
_TAKE = """WITH bucket AS MATERIALIZED (
        SELECT id, LEAST(%s::float8, COALESCE(rate_tokens + %s::float8 * GREATEST(0, extract(epoch FROM
            jobs_now() - rate_at))::float8, %s::float8)) AS tokens FROM jobs_key WHERE id = %s FOR NO KEY UPDATE),
    taken AS (SELECT id, tokens, CASE WHEN tokens < 1 THEN 0 ELSE LEAST(floor(tokens), %s::float8) END AS got
        FROM bucket)
    UPDATE jobs_key SET rate_tokens = taken.tokens - taken.got, rate_at = jobs_now() FROM taken
    WHERE jobs_key.id = taken.id RETURNING taken.got, taken.tokens - taken.got"""


def take(key_id: int, per_s: float, burst: int, most: float) -> tuple[float, float]:
    """Up to so many tokens of a key, in whole ones, and what is left; none of a key that is gone."""
    found = rows(_TAKE, [burst, per_s, burst, key_id, most])
    return (float(found[0][0]), float(found[0][1])) if found else (0.0, 0.0)
