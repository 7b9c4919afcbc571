"""The site's settings, read anew under another environment, and the pool that they ask for."""

from __future__ import annotations

import runpy
from typing import Any

import psycopg
import pytest
from django.core.checks.security.base import check_secret_key
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from jobsite import settings as site
from tests import database as db


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings as a process with this environment would read them."""
    def read_(**environment: str) -> dict[str, Any]:
        for name in ("SECRET_KEY", "ALLOWED_HOSTS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return runpy.run_path(site.__file__)

    return read_


@pytest.mark.parametrize("hosts", ["example.com", "*", ".example.com", "localhost,example.com", "localhost.example"])
def test_a_host_that_is_not_local_needs_a_key_of_its_own(read: Any, hosts: str) -> None:
    """DESIGN 8, API8: the key that everybody can read never signs for others, also where it is said outright."""
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        read(ALLOWED_HOSTS=hosts)
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        read(ALLOWED_HOSTS=hosts, SECRET_KEY=read()["SECRET_KEY"])
    assert read(ALLOWED_HOSTS=hosts, SECRET_KEY="s" * 50)["PRODUCTION"]


@pytest.mark.parametrize("hosts", ["localhost", "127.0.0.1,[::1]", ".localhost,jobs.localhost,testserver"])
def test_a_local_host_needs_no_key(read: Any, hosts: str) -> None:
    """DESIGN 8: a first look works without an environment."""
    assert not read()["PRODUCTION"]
    assert read(ALLOWED_HOSTS=hosts)["ALLOWED_HOSTS"] == hosts.split(",")


def test_the_deployment_check_knows_the_default_key(read: Any, settings: Any) -> None:
    """API8: check --deploy says that it is no secret."""
    settings.SECRET_KEY = read()["SECRET_KEY"]
    assert [fault.id for fault in check_secret_key(None)] == ["security.W009"]


def test_a_connection_that_the_server_has_ended_is_not_handed_out_again(database: None) -> None:
    """DESIGN 5, A36: after a restart of the server the first statement works, whatever waited in the pool."""
    # A pool of this test's own: other tests of this process may have left connections of theirs in use.
    connection.close()
    connection.close_pool()
    db.rows("SELECT 1")
    connection.close()
    with psycopg.connect(**connection.get_connection_params()) as other:
        ended = other.execute("SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                              " WHERE datname = current_database() AND backend_type = 'client backend'"
                              " AND pid <> pg_backend_pid()").fetchone()
    assert ended is not None
    assert ended[0] >= 1
    assert db.rows("SELECT 1") == [(1,)]
    assert connection.pool.reconnect_timeout == 2


@pytest.mark.parametrize(("said", "kept"), [("none", None), ("86400", 86_400.0), (None, 30 * 86_400.0)])
def test_how_long_ended_jobs_are_kept_is_said_by_the_environment(read: Any, said: str | None, kept: Any) -> None:
    """E13: 30 days, so many seconds, or for ever."""
    assert read(**({"JOBS_RETENTION_S": said} if said else {}))["JOBS"]["RETENTION_S"] == kept
