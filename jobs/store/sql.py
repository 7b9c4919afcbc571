"""Small pieces of SQL that several writers share: packed arrays, the receipt's hash, running statements.

Arrays travel as one newline-joined text: canonical JSON, ids, hex and numbers never hold a raw newline, and
joining text costs a fraction of what adapting a list costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connections, transaction
from django.db.transaction import TransactionManagementError

from jobs import clock

T = TypeVar("T")
ALIAS = "default"
RETRIES = 5
# deadlock_detected, serialization_failure: the database undid everything, the same call may succeed.
TRANSIENT = {"40P01", "40001"}


class NotInTransaction(TransactionManagementError):
    """This verb is durable: it must not hide in somebody else's transaction."""

    code = "not_in_transaction"


def rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement and fetch what it returns."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


def run(sql: str, params: Sequence[Any] = ()) -> int:
    """Run one statement; the number of rows it touched."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.rowcount


def packed(values: Iterable[Any]) -> str:
    """Values without newlines as one parameter; None becomes null."""
    return "\n".join([r"\N" if v is None else str(v) for v in values])


def array(type_: str) -> str:
    """The SQL that unpacks a `packed` parameter into an array of `type_`."""
    return rf"string_to_array(%s, E'\n', E'\\N')::{type_}[]"


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
