"""The system checks: what cannot work is named before anything runs, and what works is not."""

from __future__ import annotations

import pytest
from django.conf import settings as live
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from psycopg import IsolationLevel

from jobs import checks


def ids(found):
    return [message.id for message in found]


def test_the_site_itself_has_no_faults():
    """DESIGN 8."""
    assert ids(checks.check_settings(None)) == []


def test_a_drain_and_a_heartbeat_are_shorter_than_a_lease(settings):
    """B22: so that a drain in which no heartbeat gets through ends before anybody else may have its jobs."""
    settings.JOBS = {**settings.JOBS, "LEASE_S": 9, "DRAIN_GRACE_S": 5.9}
    assert ids(checks.check_settings(None)) == []
    settings.JOBS = {**settings.JOBS, "DRAIN_GRACE_S": 6}
    [fault] = checks.check_settings(None)
    assert fault.id == "jobs.E003"
    assert fault.msg == ("A drain of 6 s and a heartbeat of 3 s are not under the lease of 9 s: set "
                         "JOBS['DRAIN_GRACE_S'] below 6, or a longer JOBS['LEASE_S'].")


def test_moments_without_time_zones_are_refused(monkeypatch):
    """E2: USE_TZ=False is an error."""
    monkeypatch.setattr(live, "USE_TZ", False)
    assert ids(checks.check_settings(None)) == ["jobs.E010"]


@pytest.mark.parametrize(("level", "fine"), [(None, True), (IsolationLevel.READ_COMMITTED, True), (2, True),
                                             (IsolationLevel.REPEATABLE_READ, False),
                                             (IsolationLevel.SERIALIZABLE, False), ("serializable", False)])
def test_an_isolation_of_the_settings_own_must_be_read_committed(monkeypatch, level, fine):
    """DESIGN 5."""
    monkeypatch.setitem(live.DATABASES["default"]["OPTIONS"], "isolation_level", level)
    assert ids(checks.check_settings(None)) == ([] if fine else ["jobs.E008"])


def test_a_database_that_begins_its_transactions_otherwise_is_named(database):
    """DESIGN 5: asked of the database, and only where databases are checked."""
    call_command("check", databases=["default"])
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
        try:
            assert ids(checks.check_isolation(databases=["default"])) == ["jobs.E011"]
            with pytest.raises(SystemCheckError, match="REPEATABLE READ"):
                call_command("check", databases=["default"])
            assert checks.check_isolation(databases=["other"]) == checks.check_isolation(databases=None) == []
        finally:
            cursor.execute("RESET default_transaction_isolation")
    assert checks.check_isolation(databases=["default"]) == []
