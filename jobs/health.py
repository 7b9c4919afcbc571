"""Whether this process lives, and whether the site is ready to serve: for load balancers and orchestrators (A62).

A middleware and no route: probes come with whatever host name and without TLS, so they are answered before hosts are
checked and anything is redirected. They need no key, and tell nothing but their answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import sync_and_async_middleware

LIVE, READY = "/livez", "/readyz"
# Migrations are never taken back under a running process: what was complete once stays so.
_migrated = False


def _answer(code: int, **told: str) -> HttpResponse:
    return JsonResponse(told, status=code, headers={"Cache-Control": "no-store"})


def live() -> HttpResponse:
    """200 as long as requests are answered at all."""
    return _answer(200, status="ok")


def ready() -> HttpResponse:
    """200 once the database answers and is migrated; else 503 with what is missing, and when to ask again."""
    missing = _missing()
    if missing is None:
        return _answer(200, status="ready")
    refused = _answer(503, status="not_ready", missing=missing)
    refused["Retry-After"] = "2"
    return refused


def _missing() -> str | None:
    global _migrated
    connection = connections[DEFAULT_DB_ALIAS]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not _migrated:
            executor = MigrationExecutor(connection)
            _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except (Error, OSError):
        return "database"
    finally:
        connection.close()
    return None if _migrated else "migrations"


_PROBES: dict[str, Callable[[], HttpResponse]] = {LIVE: live, READY: ready}


def _probe(request: HttpRequest) -> Callable[[], HttpResponse] | None:
    return _PROBES.get(request.path_info) if request.method in ("GET", "HEAD") else None


@sync_and_async_middleware
def probes(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Answers `GET /livez` and `GET /readyz`; the first in MIDDLEWARE."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponse:
            probe = _probe(request)
            waits: Awaitable[HttpResponse] = get_response(request) if probe is None else sync_to_async(probe)()
            return await waits

        return answer_async

    def answer(request: HttpRequest) -> HttpResponse:
        probe = _probe(request)
        response: HttpResponse = get_response(request) if probe is None else probe()
        return response

    return answer
