"""Fixtures of every test that needs rows: a clean real database with real commits, and a clock that can be passed."""

from __future__ import annotations

import pytest

from tests import database as db


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
