"""Small pieces of SQL that several writers share: packed arrays, the receipt's hash, running statements.

Arrays travel as one newline-joined text: canonical JSON, ids, hex and numbers never hold a raw newline, and
joining text costs a fraction of what adapting a list costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connections, transaction
from django.db.backends.postgresql.base import ServerBindingCursor
from django.db.transaction import TransactionManagementError

from jobs import clock

T = TypeVar("T")
ALIAS = "default"
RETRIES = 5
PLAN_LIVES_S = 5
# deadlock_detected, serialization_failure: the database undid everything, the same call may succeed.
TRANSIENT = {"40P01", "40001"}
# read_only_sql_transaction: a standby, or a server or database that was set so. Says nothing about any row.
READ_ONLY = "25006"


class NotInTransaction(TransactionManagementError):
    """This verb is durable: it must not hide in somebody else's transaction."""

    code = "not_in_transaction"


def _cursor() -> Any:
    """A cursor that binds on the server, so that psycopg may prepare what is repeated (OPTIONS prepare_threshold).

    Django's own binds in the client and every call would be parsed and planned anew: half the cost of a small batch.
    """
    connection = connections[ALIAS]
    connection.ensure_connection()
    raw: Any = ServerBindingCursor(connection.connection)  # type: ignore[call-arg]
    return connection.make_debug_cursor(raw) if connection.queries_logged else connection.make_cursor(raw)


def plan_once(connection: Any, **_: Any) -> None:
    """For a new connection that prepares: plans are made once, not for every call (a `connection_created` receiver).

    Left to itself the server finds the general plan dearer by estimate, and plans anew for longer than it runs. The
    setting stays with the connection; Django's own statements are never prepared and do not notice.
    """
    raw = connection.connection
    prepares = connection.alias == ALIAS and getattr(raw, "prepare_threshold", None) is not None
    if prepares and not hasattr(raw, "jobs_plans_once"):
        with connection.cursor() as cursor:
            cursor.execute("SET plan_cache_mode = force_generic_plan")
        raw.jobs_plans_once = True


def _dated(sql: str) -> str:
    # A prepared plan is as old as its text: a new text now and then lets plans follow the tables' sizes, also
    # where no ANALYZE has told the server that an empty table has grown.
    return f"{sql} /* {clock.epoch(PLAN_LIVES_S)} */"


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and fetch what it returns."""
    with _cursor() as cursor:
        cursor.execute(_dated(sql), params)
        return cursor.fetchall()  # type: ignore[no-any-return]


def run(sql: str, params: Sequence[Any] = ()) -> int:
    """Run one statement; the number of rows it touched."""
    with _cursor() as cursor:
        cursor.execute(_dated(sql), params)
        return cursor.rowcount  # type: ignore[no-any-return]


def packed(values: Iterable[Any]) -> str:
    """Values without control characters as one parameter; None becomes null."""
    # A control character stands for null: PostgreSQL's usual \N is a key that a caller may choose.
    return "\n".join(["\x01" if v is None else str(v) for v in values])


def array(type_: str) -> str:
    """The SQL that unpacks a `packed` parameter into an array of `type_`."""
    return rf"string_to_array(%s, E'\n', E'\x01')::{type_}[]"


def chain_hash(prev: str, job: str, number: str, kind: str, body: str) -> str:
    """SQL for the hash of a receipt, from expressions of the moving statement (receipts.link is its twin)."""
    word = kind.encode()
    head = len(word).to_bytes(4, "big") + word
    return (
        f"sha256({prev} || uuid_send({job}) || int8send(({number})::bigint)"
        f" || int8send((extract(epoch FROM jobs_now()) * 1000000)::bigint)"
        f" || '\\x{head.hex()}'::bytea || convert_to({body}, 'UTF8'))"
    )


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error, if it has one."""
    cause = error.__cause__ if error.__cause__ is not None else error
    return getattr(cause, "sqlstate", None)


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes on this connection for now; the next one may be another server's."""
    return sqlstate(error) == READ_ONLY


def durable(work: Callable[[], T]) -> T:
    """Run `work` in a transaction of its own, again after a deadlock or a serialization failure.

    Raises NotInTransaction inside a caller's transaction (DESIGN 4): a settle never hides in somebody else's.
    """
    connection = connections[ALIAS]
    if connection.in_atomic_block:
        raise NotInTransaction("This verb commits by itself and cannot run inside a transaction.")
    for tried in range(RETRIES + 1):
        try:
            with transaction.atomic(using=ALIAS):
                return work()
        except OperationalError as error:
            if sqlstate(error) not in TRANSIENT or tried == RETRIES:
                raise
            clock.sleep(0.01 * (tried + 1))
    raise AssertionError("unreachable")


@contextmanager
def joining(*, savepoint: bool = False) -> Iterator[None]:
    """The caller's transaction if there is one, else one of our own: a joining verb's scope (DESIGN 4).

    `savepoint` protects the caller's transaction where a refusal can come after a first write.
    """
    if connections[ALIAS].in_atomic_block and not savepoint:
        yield
        return
    with transaction.atomic(using=ALIAS):
        yield
