"""The site's settings, read anew under another environment, and the pool that they ask for."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.checks.security.base import check_secret_key
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from jobsite import settings as site
from tests import database as db

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = {"SECRET_KEY": "s3cret-" * 10, "ALLOWED_HOSTS": "jobs.example.org"}
READERS = {"_whole", "_seconds", "_yes", "env.str", "env.list", "env.bool", "env.int", "env.float", "env.db", "env.url",
           "_not_off", "_credential"}
# For tests of crashes alone.
UNTOLD = {"JOBS_FAILPOINTS"}


def _read_by_the_settings() -> set[str]:
    """The variables that settings.py asks for by name."""
    calls = [node for node in ast.walk(ast.parse(Path(site.__file__).read_text())) if isinstance(node, ast.Call)]
    return {call.args[0].value for call in calls if ast.unparse(call.func) in READERS and call.args
            and isinstance(call.args[0], ast.Constant)}


READ = _read_by_the_settings()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings as a process with this environment would read them."""
    def read_(**environment: str) -> dict[str, Any]:
        for name in READ - {"DATABASE_URL"}:
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


def test_the_readme_names_every_variable_that_the_settings_read() -> None:
    """And none that they do not: a variable without effect is worse than none."""
    table = (ROOT / "README.md").read_text().partition("| variable | means | default |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines() for name in re.findall(r"`([A-Z][A-Z_]+)`", row.split("|")[1:2][0]
                                                                      if row.count("|") > 2 else "")}
    assert told == READ - UNTOLD
    assert len(told) > 25


@pytest.mark.parametrize(("environment", "said"), [
    ({"SECRET_KEY": "s" * 50}, "ALLOWED_HOSTS"), ({**PRODUCTION, "DEBUG": "on"}, "DEBUG"),
    ({"DEBUG": "perhaps"}, "DEBUG is 'perhaps', and must be on or off."),
    ({**PRODUCTION, "BEHIND_PROXY": "nginx"}, "BEHIND_PROXY is 'nginx'"),
    ({**PRODUCTION, "SECURE_HSTS_SECONDS": "a year"}, "SECURE_HSTS_SECONDS is 'a year', and must be a whole number."),
    ({"PORT": "http"}, "PORT is 'http', and must be a whole number."),
    ({"SESSION_AGE_S": "1h"}, "SESSION_AGE_S is '1h'"),
    ({"LOG_LEVEL": "LOUD"}, "LOG_LEVEL is 'LOUD'"), ({"LOG_FORMAT": "xml"}, "LOG_FORMAT is 'xml'"),
    ({"JOBS_POLL_S": "soon"}, "JOBS_POLL_S is 'soon', and must be a number of seconds."),
])
def test_a_wrong_value_is_refused_by_name(read: Any, environment: dict[str, str], said: str) -> None:
    """A typo is a sentence that names the variable, before anything starts."""
    with pytest.raises(ImproperlyConfigured, match=re.escape(said)):
        read(**environment)


def test_production_keeps_cookies_and_transport_to_itself(read: Any) -> None:
    """RELIABILITY 6.6: HTTPS, HSTS, cookies of this site alone; nothing of a proxy is believed unless it is said."""
    told = read(**PRODUCTION, CSRF_TRUSTED_ORIGINS="https://a.example,https://b.example")
    assert told["SECURE_SSL_REDIRECT"] is told["SESSION_COOKIE_SECURE"] is told["CSRF_COOKIE_SECURE"] is True
    assert told["SESSION_COOKIE_HTTPONLY"] is True
    assert told["SESSION_COOKIE_SAMESITE"] == told["CSRF_COOKIE_SAMESITE"] == "Lax"
    assert (told["SECURE_HSTS_SECONDS"], told["SESSION_COOKIE_AGE"]) == (31_536_000, 14 * 86_400)
    assert told["CSRF_TRUSTED_ORIGINS"] == ["https://a.example", "https://b.example"]
    assert "SECURE_PROXY_SSL_HEADER" not in told
    assert read(**PRODUCTION, BEHIND_PROXY="on")["SECURE_PROXY_SSL_HEADER"] == ("HTTP_X_FORWARDED_PROTO", "https")
    assert told["STORAGES"]["staticfiles"]["BACKEND"] == "jobsite.static.Collected"
    assert not read()["PRODUCTION"]


@pytest.mark.parametrize(("environment", "code", "said"), [
    ({**PRODUCTION, "DATABASE_URL": "postgres://nobody@127.0.0.1:9/none"}, 0,
     "System check identified no issues (0 silenced)."),
    ({"SECRET_KEY": "s" * 50}, 1, "SECRET_KEY is set and ALLOWED_HOSTS is not: name the hosts"),
])
def test_the_deployment_check_has_nothing_to_say_and_a_wrong_value_is_no_traceback(environment: dict[str, str],
                                                                                   code: int, said: str) -> None:
    """Issue 4: `check --deploy --fail-level WARNING` is clean in production mode."""
    env = {name: value for name, value in os.environ.items() if name not in READ}
    done = subprocess.run([sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"], cwd=ROOT,
                          env={**env, **environment}, text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in (done.stdout if code == 0 else done.stderr)
