"""The door of the console (RELIABILITY: pages behind a login, always)."""

from __future__ import annotations

import pytest

from tests.pages.people import PASSWORD, person
from tests.pages.site import Console

PAGES = ["/", "/jobs/", "/dead-letters/", "/workers/"]


def test_a_stranger_is_led_to_the_login_and_from_there_to_where_they_wanted(served, chromium, operator):
    opened = Console(chromium, served)
    page = opened.open("/workers/")
    assert page.url == f"{opened.url}/login/?next=/workers/"
    page.fill("#id_username", operator.username)
    page.fill("#id_password", "wrong")
    page.click("main button")
    assert "do not match" in page.inner_text("main")
    page.fill("#id_username", operator.username)
    page.fill("#id_password", PASSWORD)
    page.click("main button")
    assert page.url == f"{opened.url}/workers/"
    page.click("text=Sign out")
    assert page.url == f"{opened.url}/login/"
    opened.close()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_asks_for_a_login_and_for_the_permission_to_view(client, database, path):
    assert client.get(path).status_code == 302
    client.force_login(person("nobody"))
    assert client.get(path).status_code == 403
    client.force_login(person("viewer", "view_job", staff=False))
    answer = client.get(path)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
