"""The system checks: what cannot work is named before anything runs, and what works is not."""

from __future__ import annotations

import pytest
from django.conf import settings as live
from django.core.checks import ERROR
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from psycopg import IsolationLevel

from jobs import checks, conf
from jobs.registry import Registry, Span, define
from jobs.schemas import Opaque


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


@pytest.mark.parametrize(("given", "said"), [
    ({"LEASE_S": float("nan")}, "JOBS['LEASE_S'] is nan, and must be a number from 1 to 86400."),
    ({"LEASE_S": "30"}, "JOBS['LEASE_S'] is '30', and must be a number from 1 to 86400."),
    ({"POLL_S": 0}, "JOBS['POLL_S'] is 0, and must be a number from 0.01 to 60."),
    ({"POLL_S": True}, "JOBS['POLL_S'] is True, and must be a number from 0.01 to 60."),
    ({"TIMEOUT_S": None}, "JOBS['TIMEOUT_S'] is None, and must be a number from 0.001 to 2e+06."),
    ({"RECOVERY_GRACE_S": -1}, "JOBS['RECOVERY_GRACE_S'] is -1, and must be a number from 0 to 86400."),
    ({"DRAIN_GRACE_S": float("inf")}, "JOBS['DRAIN_GRACE_S'] is inf, and must be a number from 0 to 86400."),
    ({"MIN_BASE_DELAY_S": []}, "JOBS['MIN_BASE_DELAY_S'] is [], and must be a number from 0 to 86400."),
    ({"SLOTS": 1.5}, "JOBS['SLOTS'] is 1.5, and must be a whole number from 1 to 1000."),
    ({"SLOTS": 1_001}, "JOBS['SLOTS'] is 1001, and must be a whole number from 1 to 1000."),
    ({"MAX_DEADLINE_S": 0}, "JOBS['MAX_DEADLINE_S'] is 0, and must be a whole number from 1 to 2000000."),
    ({"DEFINITIONS": "myshop.jobs"}, "JOBS['DEFINITIONS'] is 'myshop.jobs', and must be a list."),
    ({"AGENTS": "codex"}, "JOBS['AGENTS'] is 'codex', and must be a list."),
    ({"CANCELED_WITH_ONE_L": "no"}, "JOBS['CANCELED_WITH_ONE_L'] is 'no', and must be True or False."),
    ({"QUEUES": {"chat": 0}}, "JOBS['QUEUES'] is {'chat': 0}, and must give each queue's name a whole weight from 1"),
    ({"QUEUES": {}}, "JOBS['QUEUES'] is {}, and must give each queue's name a whole weight from 1 to 1000."),
])
def test_a_setting_of_a_wrong_type_or_size_is_named_with_what_it_may_be(settings, given, said):
    """B22: whoever reads the settings refuses it, the check words it."""
    settings.JOBS = {**settings.JOBS, **given}
    [fault] = checks.check_settings(None)
    assert fault.id == "jobs.E002"
    assert said in fault.msg
    with pytest.raises(ImproperlyConfigured):
        conf.conf()


def test_every_wrong_setting_is_named_at_once(settings):
    """One after the other would be one restart each."""
    settings.JOBS = {**settings.JOBS, "SLOTS": 0, "POLL_S": "x", "AGENTS": 5}
    [fault] = checks.check_settings(None)
    assert all(name in fault.msg for name in ("SLOTS", "POLL_S", "AGENTS"))


@pytest.mark.parametrize("lease", [2, 1.5, Span(lambda given: 30, cap_s=2)])
def test_a_lease_of_a_definitions_own_has_room_for_two_heartbeats_too(settings, monkeypatch, lease):
    """B22, E8: a span that depends on the input is judged by its cap."""
    definition = conf.registry().current("noop")
    object.__setattr__(definition, "lease_s", lease)
    try:
        [fault] = checks.check_settings(None)
    finally:
        object.__setattr__(definition, "lease_s", None)
    assert fault.id == "jobs.E003"
    assert fault.msg.startswith("noop@1 has a lease of ")
    assert fault.msg.endswith("leaves no room for two heartbeats, 1 s apart: its lease_s must be more than 2.")


def test_a_pool_that_is_too_small_for_a_worker_is_a_warning(settings):
    """B22: a site that only serves the web may leave it so; `runworker` refuses, with the same numbers."""
    settings.JOBS = {**settings.JOBS, "SLOTS": 100}
    [fault] = checks.check_settings(None)
    assert fault.id == "jobs.W006"
    assert "100 slots need a database pool of 104 connections" in fault.msg


def test_isolated_handlers_need_nothing_of_the_workers_pool(settings, monkeypatch):
    """DESIGN 6: children have connections of their own."""
    alone = Registry([define("alone", lambda run: None, {"artifact": Opaque()})])
    monkeypatch.setattr(checks, "registry", lambda: alone)
    assert [d.executor for d in alone] == ["isolated"]
    assert checks.pool_fault(1_000) is None


@pytest.mark.parametrize("name", ["ROUTING", "DEFINITIONS", "AGENTS", "MIDDLEWARE", "BLOCKS_DELETION"])
def test_a_list_that_is_none_is_named(settings, name):
    """And nothing else goes wrong over it."""
    settings.JOBS = {**settings.JOBS, name: 5}
    [fault] = checks.check_settings(None)
    assert f"JOBS['{name}'] is 5, and must be a list." in fault.msg


@pytest.mark.parametrize(("path", "said"), [("nowhere.at_all", "cannot be imported"), ("os.sep", "cannot be called")])
def test_what_blocks_deletions_and_is_not_there_is_named(settings, path, said):
    """B38: a deletion must not go through because its guard was misspelt."""
    settings.JOBS = {**settings.JOBS, "BLOCKS_DELETION": [path]}
    [fault] = checks.check_settings(None)
    assert (fault.id, said in fault.msg) == ("jobs.E030", True)


def test_connections_kept_open_for_every_thread_are_a_warning(monkeypatch):
    """case-C04: without a pool they end with the server's last one."""
    at = live.DATABASES["default"]
    assert at["CONN_MAX_AGE"] == 0
    monkeypatch.setitem(at, "CONN_MAX_AGE", 60)
    assert ids(checks.check_settings(None)) == []
    monkeypatch.setitem(at["OPTIONS"], "pool", None)
    assert ids(checks.check_settings(None)) == ["jobs.W007"]
    monkeypatch.setitem(at, "CONN_MAX_AGE", None)
    assert ids(checks.check_settings(None)) == ["jobs.W007"]


def test_an_address_to_listen_at_that_is_none_is_named(settings):
    """DESIGN 5: where a pooler is in between."""
    settings.JOBS = {**settings.JOBS, "LISTEN_DSN": "postgres:/nonsense here"}
    assert ids(checks.check_settings(None)) == ["jobs.E012"]


@pytest.mark.parametrize("name", ["CHILD_MAX_JOBS", "CHILD_MAX_AGE_S", "CHILD_MAX_MEMORY_MB"])
@pytest.mark.parametrize("given", [0, -1, "5", True, float("nan"), None])
def test_a_child_that_would_be_replaced_before_it_has_run_anything_is_refused(settings, name, given):
    """DESIGN 6: each bound is a number from 1."""
    settings.JOBS = {**settings.JOBS, name: given}
    assert ids(checks.check_settings(None)) == ["jobs.E002"]


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


def test_every_fault_of_a_definition_is_in_one_message_of_the_check(settings, tmp_path, monkeypatch):
    """B6: at start, with the field and the nearest right word of each."""
    module = tmp_path / "crooked.py"
    module.write_text("from jobs import job\n\n\n@job('Crooked_Job', versoin=2, origins={'root'},\n"
                      "     stages={'Read': ' '}, max_ai_credits=0, timeout_s='soon', label=' ')\n"
                      "def crooked(run) -> None: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["crooked"]}
    with pytest.raises(SystemCheckError) as refusal:
        call_command("check")
    said = str(refusal.value)
    assert said.count("jobs.E004") == 1
    for word in ("versoin: is no field of a definition; did you mean 'version'?", "type: must be at most 64 of a-z",
                 "origins: must be some of user, planner, scheduler", "max_ai_credits: must be a whole number from 1",
                 "stages: 'Read' must be a lowercase name", "timeout_s: must be seconds above 0",
                 "label: must be one line"):
        assert word in said, word


def test_what_is_registered_and_takes_no_new_jobs_is_noted(settings):
    """B43, E15: registered, but nobody can enqueue it: a note and no fault."""
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["tests.definitions"]}
    [note] = checks.check_doors(None)
    assert (note.id, note.level < ERROR) == ("jobs.I021", True)
    assert "disabled@1" in note.msg
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["no.such.module"]}
    assert checks.check_doors(None) == []
    settings.JOBS = {**settings.JOBS, "DEFINITIONS": ["tests.definitions"]}
    call_command("check")


def test_a_type_that_the_rules_route_elsewhere_is_reported(settings):
    """A24, E15: the contract's group and the route's, both named; the house's own jobs are nobody's to route."""
    settings.JOBS = {**settings.JOBS, "ROUTING": [{"worker_group": "chat", "type_prefix": "noo"},
                                                  {"worker_group": "chat", "type_prefix": "job-ended"},
                                                  {"worker_group": "codex", "agent": "codex"}],
                     "ROUTING_ACKNOWLEDGED": []}
    [fault] = checks.check_settings(None)
    assert (fault.id, fault.msg) == (
        "jobs.W005", "noop declares worker group 'default', the routing rules send it to 'chat'")
