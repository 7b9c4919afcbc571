"""Logins that fail too often have to wait (RELIABILITY API2: admin login rate)."""

from __future__ import annotations

import pytest
from django.contrib.auth import aauthenticate, authenticate
from django.core.cache import cache
from django.test import Client, RequestFactory

from jobsite import logins
from tests.edges.loops import awaited
from tests.pages.people import PASSWORD, person


@pytest.fixture(autouse=True)
def _anew(settings):
    # A password costs half a second to check, which is not what is proved here.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    yield
    cache.clear()


def tries(count: int, password: str = "wrong", name: str = "operator", where: str = "/login/", **meta: str) -> bool:
    """Whether the last of so many came in."""
    for _ in range(count):
        answer = Client().post(where, {"username": name, "password": password}, **meta)
    return answer.status_code == 302


@pytest.mark.parametrize("where", ["/login/", "/admin/login/"])
def test_a_name_that_fails_ten_times_from_one_address_has_to_wait_there(database, where):
    """With one answer for both, so that nobody learns that trying is useless; from elsewhere its owner comes in."""
    person("operator", superuser=True)
    assert not tries(9, where=where)
    assert tries(1, PASSWORD, where=where)
    assert not tries(logins.MOST_BY_NAME_HERE, where=where)
    refused = Client().post(where, {"username": "OPERATOR", "password": PASSWORD})
    wrong = Client().post(where, {"username": "operator2", "password": PASSWORD})
    assert refused.status_code == wrong.status_code == 200
    assert not tries(1, PASSWORD, where=where)
    assert tries(1, PASSWORD, where=where, REMOTE_ADDR="192.0.2.7")
    assert awaited(aauthenticate(RequestFactory().get("/"), username="operator", password=PASSWORD)) is None


def test_an_address_that_tries_many_names_has_to_wait(database, monkeypatch):
    """And a name that is tried from many addresses; without a request, as in a command, nothing is counted."""
    monkeypatch.setattr(logins, "MOST_BY_ADDRESS", 4)
    monkeypatch.setattr(logins, "MOST_BY_NAME", 6)
    user = person("operator", superuser=True)
    for number in range(4):
        assert not tries(1, name=f"somebody{number}")
    assert not tries(1, PASSWORD)
    for number in range(6):
        assert not tries(1, REMOTE_ADDR=f"192.0.2.{number}")
    assert not tries(1, PASSWORD, REMOTE_ADDR="192.0.2.99")
    assert authenticate(username="operator", password=PASSWORD) == user


def test_behind_a_proxy_the_address_is_what_the_proxy_added(settings):
    """What stands before it is the caller's word; without a proxy all of it is."""
    request = RequestFactory().get("/", headers={"X-Forwarded-For": "1.1.1.1, 192.0.2.5"}, REMOTE_ADDR="10.0.0.1")
    assert logins.address_of(request) == "10.0.0.1"
    settings.BEHIND_PROXY = True
    assert logins.address_of(request) == "192.0.2.5"
    assert logins.address_of(RequestFactory().get("/", REMOTE_ADDR="10.0.0.1")) == "10.0.0.1"
