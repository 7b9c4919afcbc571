"""Fixtures of lanes: a caller of the API, and a world with a key for each role."""

from __future__ import annotations

import pytest

from tests.edges.caller import Caller
from tests.edges.conftest import api as api
from tests.lanes.calling import World


@pytest.fixture
def world(api: Caller) -> World:
    """Fresh for each test."""
    return World()
