"""Logins that fail too often have to wait (RELIABILITY API2: admin login rate)."""

from __future__ import annotations

import pytest
from django.contrib.auth import aauthenticate, authenticate
from django.core.cache import cache
from django.db import OperationalError
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


def test_tries_at_the_same_moment_are_counted_before_they_are_made(database, monkeypatch):
    """Of many requests at once no more are tried than one after the other."""
    person("operator", superuser=True)
    tried = []

    def slow(self, request, username, password, **kwargs):
        tried.append(password)
        if len(tried) < 40:
            # Another one comes while this one is still being checked.
            authenticate(request, username=username, password=password)

    monkeypatch.setattr(logins.ModelBackend, "authenticate", slow)
    assert authenticate(RequestFactory().get("/"), username="operator", password="wrong") is None
    assert len(tried) == logins.MOST_BY_NAME_HERE


def test_strangers_lock_nobody_out_of_where_they_have_come_in_before(database, monkeypatch):
    """A name that is tried from many addresses waits elsewhere; its owner's own address has failures of its own."""
    monkeypatch.setattr(logins, "MOST_BY_NAME", 6)
    person("operator", superuser=True)
    assert tries(1, PASSWORD, REMOTE_ADDR="192.0.2.50")
    for number in range(7):
        assert not tries(1, REMOTE_ADDR=f"192.0.2.{number}")
    assert not tries(1, PASSWORD, REMOTE_ADDR="192.0.2.99")
    assert tries(1, PASSWORD, REMOTE_ADDR="192.0.2.50")
    assert not tries(logins.MOST_BY_NAME_HERE, REMOTE_ADDR="192.0.2.50")
    assert not tries(1, PASSWORD, REMOTE_ADDR="192.0.2.50")


def test_a_database_that_is_away_is_no_failed_login(database, monkeypatch):
    """Whoever tries again and again meanwhile has not to wait afterwards."""
    person("operator", superuser=True)

    def away(*args, **kwargs):
        raise OperationalError

    with monkeypatch.context() as broken:
        broken.setattr(logins.ModelBackend, "authenticate", away)
        for _ in range(logins.MOST_BY_NAME_HERE + 1):
            with pytest.raises(OperationalError):
                authenticate(RequestFactory().get("/"), username="operator", password=PASSWORD)
    assert tries(1, PASSWORD)


def test_behind_a_proxy_the_address_is_what_the_proxy_added(settings):
    """What stands before it is the caller's word; without a proxy all of it is."""
    request = RequestFactory().get("/", headers={"X-Forwarded-For": "1.1.1.1, 192.0.2.5"}, REMOTE_ADDR="10.0.0.1")
    assert logins.address_of(request) == "10.0.0.1"
    settings.BEHIND_PROXY = True
    assert logins.address_of(request) == "192.0.2.5"
    assert logins.address_of(RequestFactory().get("/", REMOTE_ADDR="10.0.0.1")) == "10.0.0.1"
