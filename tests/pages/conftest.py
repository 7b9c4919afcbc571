"""Fixtures of the pages: the site as daphne serves it, people with and without permissions, a headless Chromium."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.pages.people import person
from tests.pages.site import Console, serving
from tests.plugin import skip

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has the browser and the server that it looks at: four of each would starve one another."""
    for item in items:
        if item.path.is_relative_to(HERE) and "served" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def served(django_db_setup):
    """Daphne on the test database, one for all tests of this process."""
    with serving() as port:
        yield port


@pytest.fixture
def operator(database):
    """A superuser: sees and may do everything."""
    return person("operator", superuser=True)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium of the machine's."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found,
                                             args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture
def console(served, chromium, operator, tmp_path: Path):
    """The console in a browser, signed in as the operator. Scripts that fail on a page fail the test."""
    opened = Console(chromium, served)
    opened.sign_in(operator)
    yield opened
    opened.close()
