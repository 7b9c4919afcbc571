"""System checks: settings that cannot work are named before anything runs, each with what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from psycopg import IsolationLevel

from jobs.conf import conf, middleware, registry, unknown_keys
from jobs.errors import Invalid
from jobs.leases import heartbeat_s
from jobs.routing import SYSTEM, disagreements

MINUTE_S = 60
# As of a definition.
MAX_RETENTION_S = 1e10


@register("jobs")
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """`JOBS`, the definitions it names, and the database it relies on."""
    faults: list[CheckMessage] = [
        Error(fault, id="jobs.E001") for fault in unknown_keys(dict(getattr(settings, "JOBS", {})))]
    if not faults:
        faults += [*_values(), *_definitions(), *_middleware()]
    return [*faults, *_database(), *_order(), *_time_zones()]


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
    beat = heartbeat_s(site.LEASE_S)
    if 2 * beat >= site.LEASE_S:
        yield Error(f"A lease of {site.LEASE_S:g} s leaves no two heartbeats ({beat:g} s apart).", id="jobs.E003",
                    hint="Set JOBS['LEASE_S'] to 3 or more.")
    kept = site.RETENTION_S
    if kept is not None and not (type(kept) in (int, float) and MINUTE_S <= kept <= MAX_RETENTION_S):
        yield Error(f"JOBS['RETENTION_S'] is {kept!r}: that is no span to keep ended jobs for.", id="jobs.E012",
                    hint="Seconds from 60 on, or None to keep them for ever; a definition may say less.")
    for name in ("CHILD_MAX_JOBS", "CHILD_MAX_AGE_S", "CHILD_MAX_MEMORY_MB"):
        given = getattr(site, name)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not given >= 1:
            yield Error(f"JOBS[{name!r}] is {given!r}: an isolated child needs a number from 1.", id="jobs.E021")


def _definitions() -> Iterator[CheckMessage]:
    try:
        known = registry()
    except (ImportError, Invalid, ImproperlyConfigured, TypeError) as error:
        yield Error(f"The definitions cannot be loaded: {error}", id="jobs.E004",
                    hint="JOBS['DEFINITIONS'] lists modules that declare jobs.")
        return
    yield from (Error(fault, id="jobs.E005") for fault in known.check(conf().QUEUES))
    routed = disagreements(conf().ROUTING, [(d.type, d.worker_group) for d in known if d.worker_group != SYSTEM])
    yield from (Warning(fault, id="jobs.W005") for fault in routed)


def _middleware() -> Iterator[CheckMessage]:
    try:
        middleware()
    except ImproperlyConfigured as error:
        yield Error(str(error), id="jobs.E020", hint="Each is the dotted path of a callable: (run) -> context manager.")


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


def _order() -> Iterator[CheckMessage]:
    names = [app.partition(".")[0] for app in settings.INSTALLED_APPS]
    if "channels" in names and names.index("channels") < names.index("jobs"):
        yield Error("Channels ships a `runworker` of its own: 'jobs' must stand before 'channels' in INSTALLED_APPS.",
                    id="jobs.E009")


def _time_zones() -> Iterator[CheckMessage]:
    if not settings.USE_TZ:
        yield Error("Moments of jobs have a time zone: USE_TZ must be True.", id="jobs.E010")
