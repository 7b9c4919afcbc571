"""Fixtures of every test that needs rows: a clean real database with real commits, and a clock that can be passed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.test.utils import setup_databases, teardown_databases

from jobs import publish
from jobs.services import traffic
from tests import database as db

# Tests of these wait for processes more than they compute.
WAITING = ("worker", "site", "crash")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules that wait evenly among those that compute, so that four at once keep the processors busy."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    places: dict[Path, float] = {}
    for waiting in (True, False):
        mine = [path for path in modules if (path.parent.name in WAITING) is waiting]
        total, before = sum(len(modules[path]) for path in mine), 0
        for path in mine:
            places[path] = before / total
            before += len(modules[path])
    items[:] = [item for path in sorted(modules, key=places.__getitem__) for item in modules[path]]


@pytest.fixture(autouse=True)
def _loop_of_the_browser(request, monkeypatch):
    """Once Chromium runs, Playwright's loop is this thread's to the end.

    Django must not take that for an async view, and tests without a browser must not see it.
    """
    loop, browser = asyncio._get_running_loop(), "chromium" in request.fixturenames
    if browser:
        monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    asyncio._set_running_loop(loop if browser else None)
    yield
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def django_db_setup(request, django_test_environment, django_db_blocker, django_db_keepdb, django_db_createdb,
                    django_db_modify_db_settings):
    """The test database, made for every run: pytest-django's own makes it for marked tests only."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=request.config.option.verbose, interactive=False, aliases=["default"],
                               serialized_aliases=[], keepdb=django_db_keepdb and not django_db_createdb)
        db.do_not_wait_for_disks()
    yield
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            # They have threads of their own, which must not meet the database that is dropped, or the one that follows.
            traffic.flusher.end()
            for sender in (publish._waker, publish._reporter):
                sender._send = lambda: None
            db.close()
            teardown_databases(made, verbosity=request.config.option.verbose)


@pytest.fixture
def database(django_db_setup, django_db_blocker):
    """The test database, empty but for the default workspace. Commits are real."""
    with django_db_blocker.unblock():
        db.empty()
        yield
        db.reset_clock()
        db.close()


@pytest.fixture
def driver(database):
    """Speaks in verbs and compares fold and row after each."""
    from tests.driver import Driver

    return Driver()


@pytest.fixture
def owned_site(settings: Any) -> None:
    """A site that registers these."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": [*settings.JOBS["DEFINITIONS"], "tests.owned"],
                     "CREDENTIAL_RESOLVER": "tests.owned.resolve"}
