"""Fixtures of the edges: the API's routes, and a caller that may do everything."""

from __future__ import annotations

import pytest

from jobs.services import claiming
from tests.edges.caller import Caller


@pytest.fixture
def api(driver, settings):
    """A workspace key with every permission; the database is clean and turns begin anew."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    claiming._cursors.clear()
    return Caller()
