"""System checks: settings that cannot work are named before anything runs, each with what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import psycopg
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict

from jobs.conf import (
    api_middleware,
    blockers,
    conf,
    credential_resolver,
    lease_faults,
    middleware,
    registry,
    unknown_keys,
)
from jobs.errors import Invalid
from jobs.routing import SYSTEM, disagreements
from jobs.services import declared

SPARE_CONNECTIONS = 4


@register("jobs")
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """`JOBS`, the definitions it names, and the database it relies on."""
    faults: list[CheckMessage] = [
        Error(fault, id="jobs.E001") for fault in unknown_keys(dict(getattr(settings, "JOBS", {})))]
    faults = faults or [*_values()]
    # Without settings that can be read there are no definitions to be judged.
    if not {fault.id for fault in faults} & {"jobs.E001", "jobs.E002"}:
        faults += [*_definitions(), *_middleware(), *_resolver(), *_blockers(), *_timers()]
    return [*faults, *_database(), *_order(), *_time_zones()]


@register("jobs")
def check_doors(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Notes what is registered and cannot be enqueued (B43); definitions that do not load are `check_settings`'."""
    try:
        closed = [d.name for d in registry() if not d.enabled]
    except (ImportError, Invalid, ImproperlyConfigured, TypeError):
        return []
    return [Info(f"{name} is registered, and takes no new jobs: it is not enabled.", id="jobs.I021",
                 hint="The jobs that there are run on.") for name in closed]


@register(Tags.database)
def check_isolation(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """The isolation that transactions really get: the role, the database or the server may say another default."""
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    with transaction.atomic(using=DEFAULT_DB_ALIAS), connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        level = cursor.fetchone()[0]
    if level == "read committed":
        return []
    return [Error(f"Caps are exact at READ COMMITTED only, and this database begins its transactions at "
                  f"{level.upper()}.", id="jobs.E011",
                  hint="Set default_transaction_isolation to 'read committed' for the database and its role.")]


def _values() -> Iterator[CheckMessage]:
    try:
        site = conf()
    except (ImproperlyConfigured, Invalid, TypeError) as error:
        yield Error(f"JOBS cannot be read: {error}", id="jobs.E002")
        return
    yield from (Error(fault, id="jobs.E003") for fault in lease_faults(site))
    if site.callbacks and find_spec("httpcore") is None:
        yield Error("Callbacks need an HTTP client: install the extra `callbacks`.", id="jobs.E013")
    if site.LISTEN_DSN:
        try:
            conninfo_to_dict(site.LISTEN_DSN)
        except psycopg.Error as error:
            yield Error(f"JOBS['LISTEN_DSN'] is no address of a database: {error}", id="jobs.E012")


def _definitions() -> Iterator[CheckMessage]:
    try:
        known = registry()
    except (ImportError, Invalid, ImproperlyConfigured, TypeError) as error:
        yield Error(f"The definitions cannot be loaded: {error}", id="jobs.E004",
                    hint="JOBS['DEFINITIONS'] lists modules that declare jobs.")
        return
    yield from (Error(fault, id="jobs.E005") for fault in known.check(conf().QUEUES))
    yield from (Error(fault, id="jobs.E003") for fault in set(lease_faults(conf(), known)) - set(lease_faults(conf())))
    if fault := pool_fault(conf().SLOTS):
        yield Warning(fault, id="jobs.W006", hint="Leave it so where no `runworker` is started with these settings.")
    yield from _routing([(d.type, d.worker_group) for d in known if d.worker_group != SYSTEM])


def _routing(own: list[tuple[str, str]]) -> Iterator[CheckMessage]:
    """Where rules and definitions disagree and nobody has said that it is meant so, and what is said in vain (A24)."""
    said = conf().ROUTING_ACKNOWLEDGED
    yield from (Warning(fault, id="jobs.W005", hint="Where it is meant so, name the type in ROUTING_ACKNOWLEDGED.")
                for fault in disagreements(conf().ROUTING, [entry for entry in own if entry[0] not in said]))
    for type_ in {type_ for type_, _ in own} & set(said):
        if not disagreements(conf().ROUTING, [entry for entry in own if entry[0] == type_]):
            yield Warning(f"JOBS['ROUTING_ACKNOWLEDGED'] names {type_!r}, about which nothing disagrees.",
                          id="jobs.W021")


def _middleware() -> Iterator[CheckMessage]:
    try:
        middleware()
        api_middleware()
    except ImproperlyConfigured as error:
        yield Error(str(error), id="jobs.E020", hint="Each is the dotted path of a callable: (run) -> context manager.")


def _blockers() -> Iterator[CheckMessage]:
    try:
        blockers()
    except ImproperlyConfigured as error:
        yield Error(str(error), id="jobs.E030", hint="Each is the dotted path of a callable: (tenant) -> reasons.")


def _timers() -> Iterator[CheckMessage]:
    # Where definitions cannot be loaded, that has been said.
    with suppress(ImportError, ImproperlyConfigured, TypeError):
        yield from (Error(fault, id="jobs.E040") for fault in declared.faults())


def _resolver() -> Iterator[CheckMessage]:
    try:
        resolver = credential_resolver()
    except ImproperlyConfigured as error:
        yield Error(str(error), id="jobs.E021", hint="It is the dotted path of resolve(reference, *, tenant, job_id).")
        return
    try:
        needing = [d.name for d in registry() if d.credential == "owner" and (d.handler or d.share_credential)]
    except (ImportError, Invalid, ImproperlyConfigured, TypeError):
        # Named by E004 already.
        return
    if resolver is None and needing:
        yield Error(f"{', '.join(needing[:5])} need an owner's credential, and nothing resolves it.", id="jobs.E022",
                    hint="Set JOBS['CREDENTIAL_RESOLVER'] to the dotted path of resolve(reference, *, tenant, job_id).")


def _database() -> Iterator[CheckMessage]:
    at = settings.DATABASES.get("default", {})
    if "postgresql" not in at.get("ENGINE", ""):
        yield Error("The default database must be PostgreSQL 15 to 18.", id="jobs.E006")
    options = at.get("OPTIONS", {})
    if options.get("server_side_binding"):
        yield Error("OPTIONS['server_side_binding'] keeps the claim from its partial index.", id="jobs.E007",
                    hint="Leave it out; what may be bound on the server is.")
    if options.get("isolation_level") not in (None, IsolationLevel.READ_COMMITTED):
        yield Error("Caps are exact at READ COMMITTED only.", id="jobs.E008",
                    hint="Leave OPTIONS['isolation_level'] out.")


    if at.get("CONN_MAX_AGE", 0) != 0 and not options.get("pool"):
        yield Warning("CONN_MAX_AGE keeps a connection open for every thread that ever asked the database, in servers "
                      "and workers alike, up to the server's last one.", id="jobs.W007",
                      hint="Set CONN_MAX_AGE to 0, and OPTIONS['pool'] to keep connections.")


def pool_fault(slots: int) -> str | None:
    """Why a worker of so many slots would starve for connections, with the numbers (B22)."""
    # Handlers and hooks in threads use a connection each, the worker itself a few; children have their own.
    threaded = any(d.executor == "thread" or (d.executor == "async" and d.publish is not None) for d in registry())
    most = _pool_size(connections[DEFAULT_DB_ALIAS].settings_dict.get("OPTIONS", {}).get("pool"))
    needed = (slots if threaded else 1) + SPARE_CONNECTIONS
    if most is None or most >= needed:
        return None
    return (f"{slots} slots need a database pool of {needed} connections, max_size is {most}. "
            f"Set DATABASE_POOL_MAX={needed} or take fewer --slots.")


def _pool_size(pool: Any) -> int | None:
    """The most connections of a pool, by psycopg_pool's own defaults; None without a pool."""
    if not pool:
        return None
    given = pool if isinstance(pool, dict) else {}
    return int(given.get("max_size") or given.get("min_size", 4))


def _order() -> Iterator[CheckMessage]:
    names = [app.partition(".")[0] for app in settings.INSTALLED_APPS]
    if "channels" in names and names.index("channels") < names.index("jobs"):
        yield Error("Channels ships a `runworker` of its own: 'jobs' must stand before 'channels' in INSTALLED_APPS.",
                    id="jobs.E009")


def _time_zones() -> Iterator[CheckMessage]:
    if not settings.USE_TZ:
        yield Error("Moments of jobs have a time zone: USE_TZ must be True.", id="jobs.E010")
