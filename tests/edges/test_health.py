"""Probes: whether a process lives, and whether the site is ready (A62)."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client

from jobs import health


@pytest.fixture(autouse=True)
def _anew(monkeypatch):
    monkeypatch.setattr(health, "_migrated", False)


@pytest.mark.parametrize(("path", "status"), [("/livez", "ok"), ("/readyz", "ready")])
def test_a_site_in_order_says_so_to_whoever_asks(database, path, status):
    """Whatever the host name, without TLS and without a key; never from a cache."""
    for host in ("10.1.2.3:8000", "nobody.example"):
        answer = Client().get(path, headers={"host": host})
        assert (answer.status_code, answer.json()) == (200, {"status": status})
        assert answer["Cache-Control"] == "no-store"
    assert Client().head(path).status_code == 200
    assert asyncio.run(AsyncClient().get(path)).json() == {"status": status}


def test_a_database_that_is_not_migrated_is_not_ready_and_one_that_is_stays_so(database):
    """503 with what is missing, and when to ask again."""
    recorder = MigrationRecorder(connections["default"])
    [latest] = MigrationLoader(None).graph.leaf_nodes("jobs")
    recorder.record_unapplied(*latest)
    try:
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "not_ready", "missing": "migrations"})
        assert answer["Retry-After"] == "2"
        assert Client().get("/livez").status_code == 200
    finally:
        recorder.record_applied(*latest)
    assert Client().get("/readyz").status_code == 200


def test_without_its_database_a_site_lives_and_is_not_ready(database, settings):
    """And says no more than that: no address, no error text."""
    plain = connections["default"]
    away = plain.copy()
    away.settings_dict["OPTIONS"].pop("pool", None)
    away.settings_dict.update(HOST="127.0.0.1", PORT="9")
    connections["default"] = away
    try:
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "not_ready", "missing": "database"})
        assert Client().get("/livez").status_code == 200
    finally:
        connections["default"] = plain


def test_everything_else_goes_on_to_the_site():
    """Other paths, and other verbs on these."""
    seen = []

    def site(request: HttpRequest) -> HttpResponse:
        seen.append((request.method, request.path_info))
        return HttpResponse("site")

    asked = []
    for method, path in (("GET", "/livez/"), ("POST", "/livez"), ("GET", "/api/livez")):
        request = HttpRequest()
        request.method, request.path_info = method, path
        asked.append((method, path))
        assert health.probes(site)(request).content == b"site"
    assert seen == asked
