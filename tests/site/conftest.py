"""Fixtures of whole sites."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.site.own import own_database


@pytest.fixture
def url(database) -> Iterator[str]:
    """An own, empty database on the server of the tests."""
    with own_database(f"site_{uuid.uuid4().hex[:12]}") as made:
        yield made
