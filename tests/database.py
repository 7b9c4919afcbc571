"""The test database between tests: emptied, and with a clock that tests move."""

from __future__ import annotations

from contextlib import contextmanager

from django.db import connection, connections

from jobs.services import keys, rates, tenancy

_CLOCK = ("CREATE OR REPLACE FUNCTION jobs_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS"
          " 'SELECT statement_timestamp(){}'")
_offset = 0.0


# Deletes where little was written, which costs a fiftieth of truncating; its locks wait like those for what still
# writes. Beyond so many bytes of a table dead rows would be seen in plans, and so would what an earlier test's ANALYZE
# or vacuum has counted.
_EMPTY = r"""DO $$ DECLARE name text; large boolean := false; names text[] := ARRAY(
        SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'
            AND (tablename LIKE 'jobs\_%%' OR tablename LIKE 'lanes\_%%'));
    BEGIN
        EXECUTE 'LOCK TABLE ' || array_to_string(names, ', ') || ' IN ACCESS EXCLUSIVE MODE';
        PERFORM set_config('jobs.erasing', 'on', true);
        FOREACH name IN ARRAY names LOOP
            large := large OR pg_relation_size(name::regclass) > 65536
                OR (SELECT reltuples >= 0 FROM pg_class WHERE oid = name::regclass);
        END LOOP;
        IF large THEN
            EXECUTE 'TRUNCATE ' || array_to_string(names, ', ') || ' RESTART IDENTITY CASCADE';
        ELSE
            FOREACH name IN ARRAY names LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
            PERFORM setval(format('%%I', sequencename)::regclass, start_value, false) FROM pg_sequences
                WHERE schemaname = 'public' AND last_value IS NOT NULL
                AND (sequencename LIKE 'jobs\_%%' OR sequencename LIKE 'lanes\_%%');
        END IF;
    END $$"""


def empty() -> None:
    """Empty every table of jobs and lanes and make the default workspace again."""
    assert str(connection.settings_dict["NAME"]).startswith("test_"), "this is no test database"
    with connection.cursor() as cursor:
        cursor.execute(_EMPTY, [])
        # Of foreign keys as well, which were made for the rows of an earlier test: a deletion does not end them.
        cursor.execute("DISCARD PLANS", [])
    tenancy.make_defaults()
    keys.forget()
    rates.forget()


def do_not_wait_for_disks() -> None:
    """Commits to the test database are as visible, and as safe from the death of any process but the server's own.

    Tests that end a server have one of their own.
    """
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" SET synchronous_commit = off')
    close()


def pass_time(seconds: float) -> None:
    """Move the database's clock on, for every connection."""
    global _offset
    _offset += seconds
    keys.forget()
    rates.forget()
    with connection.cursor() as cursor:
        cursor.execute(_CLOCK.format(f" + interval ''{_offset} seconds''"))


def reset_clock() -> None:
    """Back to the real time."""
    global _offset
    if _offset:
        _offset = 0.0
        with connection.cursor() as cursor:
            cursor.execute(_CLOCK.format(""))


def close() -> None:
    """Give every connection of this thread back."""
    connections.close_all()


def rows(sql: str, *params: object) -> list[tuple]:
    """Plain SQL, read."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall()


def row_hash(job_id: object) -> str:
    """A digest of everything that is stored about a job: equal before and after means that nothing changed."""
    return rows("""SELECT md5(coalesce((SELECT j::text FROM jobs_job j WHERE id = %s), '') || coalesce((
        SELECT string_agg(a::text, '|' ORDER BY a.number) FROM jobs_attempt a WHERE job_id = %s), '') || coalesce((
        SELECT string_agg(r::text, '|' ORDER BY r.number) FROM jobs_receipt r WHERE job_id = %s), ''))""",
        job_id, job_id, job_id)[0][0]


@contextmanager
def own_connection():
    """For a thread of a test: its connection is given back at the end."""
    try:
        yield
    finally:
        connections.close_all()
