"""Timers that the settings declare: synced once and again, by several at once, and nobody else's to change (D13)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core.management import call_command

from jobs import checks, clock
from jobs.models import Timer
from jobs.services import declared, tenancy, timers
from jobs.services.timers import Draft, TimerDeclared
from jobs.worker.loops import loops
from tests.edges.caller import Caller, problem
from tests.races.threads import together

NIGHTLY: dict[str, Any] = {"type": "echo", "cron": "0 3 * * *", "zone": "Europe/Berlin", "input": {"value": "x"}}


@pytest.fixture
def declare(driver, settings):
    """Says what the settings declare, and syncs."""

    def say(**said: Any) -> list[str]:
        settings.JOBS = {**settings.JOBS, "TIMERS": said}
        declared.sync()
        return sorted(Timer.objects.filter(declared=True).values_list("name", flat=True))

    return say


def rows() -> list[Any]:
    return list(Timer.objects.order_by("name").values())


def test_the_rows_say_what_the_settings_say_and_a_sync_that_finds_it_so_writes_nothing(declare) -> None:
    """D13: made, changed, removed; idempotent, and a pause stays."""
    assert declare(nightly=NIGHTLY, watch={"type": "echo", "every_s": 60, "tenant": "acme"}) == ["nightly", "watch"]
    before = rows()
    assert declare(nightly=NIGHTLY, watch={"type": "echo", "every_s": 60, "tenant": "acme"}) == ["nightly", "watch"]
    assert rows() == before
    nightly = Timer.objects.get(name="nightly")
    timers.pause(nightly, by="user:ann", reason="the vendor is down")
    declare(nightly={**NIGHTLY, "cron": "0 4 * * *"})
    [row] = Timer.objects.all()
    assert (row.pk, row.cron, row.by, row.paused_reason) == (nightly.pk, "0 4 * * *", "settings", "the vendor is down")
    assert declare() == []
    assert not Timer.objects.exists()


def test_nobody_but_the_settings_changes_a_declared_timer_and_anybody_may_pause_it(declare, settings) -> None:
    """D13: API and services alike; it is made by hand before, and becomes the settings'."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    mine = timers.put(tenancy.tenant(tenancy.workspace(), None), "nightly", Draft("noop", cron="@daily"), by="user:ann")
    other = timers.put(tenancy.tenant(tenancy.workspace(), None), "other", Draft("noop", cron="@daily"), by="user:ann")
    declare(nightly=NIGHTLY)
    api = Caller()
    told = api.get("/timers/nightly").json()
    assert (told["declared"], told["type"], told["by"]) == (True, "echo", "settings")
    assert Timer.objects.get(name="nightly").pk == mine.pk
    problem(api.send("PUT", "/timers/nightly", {"type": "outside", "every_s": 60}), 409, "timer_declared")
    problem(api.send("DELETE", "/timers/nightly"), 409, "timer_declared")
    with pytest.raises(TimerDeclared):
        timers.remove(mine, by="user:ann")
    assert api.post("/timers/nightly/pause", {"reason": "x"}).status_code == 200
    assert api.post("/timers/nightly/run").status_code == 202
    declare()
    assert [row.pk for row in Timer.objects.all()] == [other.pk]


def test_one_that_is_refused_stops_no_other_and_is_not_removed(declare, caplog) -> None:
    """D13: a line of the log says which and why; it stays as it was."""
    declare(nightly=NIGHTLY)
    with caplog.at_level(logging.ERROR, "jobs.timers"):
        assert declare(nightly={**NIGHTLY, "type": "ecko"}, later={"type": "noop", "every_s": 60}) == [
            "later", "nightly"]
    assert "timer 'nightly' of the settings is refused" in caplog.text
    assert "did you mean 'echo'" in caplog.text
    assert Timer.objects.get(name="nightly").type == "echo"


def test_processes_that_start_at_once_make_each_timer_once(declare, settings) -> None:
    """D13: eight of them, with three timers, twice."""
    said = {f"t{n}": {"type": "echo", "every_s": 60 + n, "tenant": "acme"} for n in range(3)}
    settings.JOBS = {**settings.JOBS, "TIMERS": said}
    for _ in range(2):
        assert together([declared.sync] * 8) == [None] * 8
        assert [(row.name, row.revision) for row in Timer.objects.order_by("name")] == [("t0", 1), ("t1", 1), ("t2", 1)]
    settings.JOBS = {**settings.JOBS, "TIMERS": {}}
    # Each would remove what another has just removed.
    together([declared.sync] * 8)
    assert not Timer.objects.exists()


def test_every_worker_and_pump_syncs_when_it_begins_and_so_does_a_migration(driver, settings) -> None:
    """D13: once in the life of a process, at its first round; a sync that failed is tried again."""
    settings.JOBS = {**settings.JOBS, "TIMERS": {"nightly": NIGHTLY}}
    [loop] = [one for one in loops() if one.duty == "declared"]
    assert not loop.led
    at_start = declared.AtStart()
    assert at_start.tick() is False
    Timer.objects.all().delete()
    assert at_start.tick() is False
    assert not Timer.objects.exists()
    call_command("migrate", verbosity=0)
    assert [row.name for row in Timer.objects.all()] == ["nightly"]


@pytest.mark.parametrize(("said", "words"), [
    ({"nightly": {"type": "ecko", "cron": "@daily"}},
     "JOBS['TIMERS']['nightly']['type']: There is no job type 'ecko'; did you mean 'echo'"),
    ({"nightly": {"type": "echo", "corn": "@daily"}}, "'corn' is nothing that a timer says; did you mean 'cron'?"),
    ({"nightly": {"type": "echo", "cron": "0 3 * *"}}, "JOBS['TIMERS']['nightly']['cron']: has 4 fields"),
    ({"nightly": {"type": "echo", "cron": "@daily", "zone": "Europe/Berln"}}, "did you mean 'Europe/Berlin'"),
    ({"nightly": {"type": "echo"}}, "Say either cron or every_s"), ({"nightly": {"cron": "@daily"}}, "says no type"),
    ({"Nightly": {"type": "echo", "cron": "@daily"}}, "must be 1 to 100 of a-z"),
    ({"nightly": {"type": "echo", "cron": "@daily", "input": {"valu": 1}}},
     "JOBS['TIMERS']['nightly']['input'] /valu: "),
    ({"nightly": {"type": "echo", "cron": "@daily", "options": {"queue": "chatt"}}}, "There is no such queue"),
    ({"nightly": {"type": "echo", "cron": "@daily", "tenant": "a\tb"}}, "1 to 255 printable"),
    ({"nightly": {"type": "echo", "cron": "@daily", "tenant": 5}}, "['tenant']: must be text"),
])
def test_what_cannot_be_is_a_fault_of_the_check_with_what_would_be_right(settings, said, words) -> None:
    """B22, D13: without a database."""
    settings.JOBS = {**settings.JOBS, "TIMERS": said}
    [fault] = checks.check_settings(None)
    assert (fault.id, words in fault.msg) == ("jobs.E040", True), fault.msg


@pytest.mark.parametrize("said", [[], {"nightly": "daily"}, "x", {"nightly": None}])
def test_timers_that_are_no_mapping_are_a_fault_of_the_settings(settings, said) -> None:
    """B22."""
    settings.JOBS = {**settings.JOBS, "TIMERS": said}
    [fault] = checks.check_settings(None)
    assert (fault.id, "JOBS['TIMERS'] must give" in fault.msg) == ("jobs.E002", True)


def test_what_is_right_is_no_fault(settings) -> None:
    """B22: of a tenant and a workspace that no database was asked for."""
    settings.JOBS = {**settings.JOBS, "TIMERS": {
        "nightly": NIGHTLY, "watch": {"type": "echo", "every_s": 60, "tenant": "acme", "workspace": "elsewhere",
                                      "anchor_at": clock.EPOCH, "overlap": "skip"}}}
    assert checks.check_settings(None) == []
