"""Timers in the admin: put by a form that the service judges, answered by buttons, their firings to look at (D13)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Firing, Timer
from jobs.services import declared, tenancy, timers
from jobs.services.timers import Draft
from tests.edges.admin_people import act, confirm, quick, somebody, told, url  # noqa: F401
from tests.pages.people import person


def form(**said: Any) -> dict[str, Any]:
    return {"workspace": "default", "tenant": "acme", "name": "nightly", "type": "echo", "said_input": '{"value": "x"}',
            "said_options": "", "cron": "0 3 * * *", "zone": "Europe/Berlin", "every_s": "", "anchor_at_0": "",
            "anchor_at_1": "", "moment_field": "", "catch_up": "last", "catch_up_most": "", "overlap": "skip", **said}


@pytest.fixture
def clockmaker(driver):
    """Somebody who manages timers and sees payloads."""
    client = somebody("clockmaker")
    client.force_login(person("clockmaker", "manage_timers", "view_job", "view_payload"))
    return client


def made(**more: Any) -> Timer:
    draft = Draft("echo", {"value": "x", "path": ""}, cron="0 3 * * *", zone="Europe/Berlin", **more)
    return timers.put(tenancy.tenant(tenancy.workspace(), "acme", make=True), "nightly", draft, by="user:ann")


def test_a_timer_is_made_and_changed_by_a_form_and_its_next_moments_are_shown(clockmaker) -> None:
    """D13, E12: through the service, with a line in its history for each."""
    answer = clockmaker.post(url("timer", "add"), form())
    row = Timer.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, url("timer", row.pk, "change"))
    assert (row.tenant.subject, row.cron, row.zone, row.catch_up, row.overlap, row.by, json.loads(row.input)) == (
        "acme", "0 3 * * *", "Europe/Berlin", "last", "skip", "user:clockmaker", {"value": "x"})
    page = clockmaker.get(url("timer", row.pk, "change")).content.decode()
    assert len(re.findall(r"03:00:00 CES?T", page)) == 5
    change = form(cron="", every_s="90", zone="", catch_up="all", catch_up_most="7", revision="1", overlap="allow")
    assert clockmaker.post(url("timer", row.pk, "change"), change).status_code == 302
    row.refresh_from_db()
    assert (row.cron, row.every_s, row.catch_up_most, row.revision) == (None, 90, 7, 2)
    assert LogEntry.objects.count() == 2
    assert "nightly" in clockmaker.get(url("timer")).content.decode()
    assert "nightly" in clockmaker.get(url("timer") + "?q=nightly").content.decode()


@pytest.mark.parametrize(("said", "field"), [
    ({"cron": "0 3 * *"}, "cron"), ({"zone": "Berlin"}, "zone"), ({"every_s": "60"}, "cron"),
    ({"type": "ecko"}, "type"),
    ({"name": "Nightly"}, "name"), ({"workspace": "else"}, "workspace"), ({"tenant": "a\tb"}, "tenant"),
    ({"said_input": "{"}, "said_input"), ({"said_input": '{"valu": 1}'}, "said_input"),
    ({"said_input": '{"value": "[redacted]", "token": "[redacted]"}'}, "said_input"),
    ({"said_options": '{"que": 1}'}, "said_options"), ({"said_options": '{"queue": "chatt"}'}, "said_options"),
    ({"catch_up_most": "5"}, "catch_up_most"), ({"moment_field": "a b"}, "moment_field"),
    ({"catch_up": "al"}, "catch_up"), ({"version": "9"}, "version"), ({"cron": "", "every_s": "0"}, "every_s"),
])
def test_what_cannot_be_is_refused_at_its_field(clockmaker, said, field) -> None:
    """E14: as the service judges it, and nothing is written."""
    answer = clockmaker.post(url("timer", "add"), form(**said))
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors, answer.context["adminform"].form.errors
    assert not Timer.objects.exists()


def test_who_read_an_older_one_changes_nothing_and_a_name_is_made_once(clockmaker) -> None:
    """E12: the form carries the revision that was shown."""
    row = made()
    timers.pause(row, by="user:bob", reason="x")
    answer = clockmaker.post(url("timer", row.pk, "change"), form(revision="1"), follow=True)
    assert told(answer) == ["The timer is at revision 2."]
    row.refresh_from_db()
    assert (row.revision, row.overlap) == (2, "allow")
    again = clockmaker.post(url("timer", "add"), form())
    assert "name" in again.context["adminform"].form.errors


def test_who_may_not_see_inputs_changes_the_rest_and_leaves_them(driver) -> None:
    """6.2: `manage_timers` alone shows none and keeps it; with `view_payload` a secret stays as it was."""
    row = made(options={"priority": 3})
    Timer.objects.filter(pk=row.pk).update(input='{"token":"s3cret","value":"x"}')
    client = somebody("clockmaker")
    page = client.get(url("timer", row.pk, "change")).content.decode()
    assert "s3cret" not in page
    assert "said_input" not in page
    assert "s3cret" not in client.get(url("timer")).content.decode()
    client.force_login(person("seer", "manage_timers", "view_job", "view_payload"))
    seen = client.get(url("timer", row.pk, "change")).content.decode()
    assert "s3cret" not in seen
    assert "[redacted]" in seen
    blind = somebody("clockmaker")
    Timer.objects.filter(pk=row.pk).update(input='{"path":"","value":"kept"}')
    assert blind.post(url("timer", row.pk, "change"), form(revision="1", said_input="{}")).status_code == 302
    row.refresh_from_db()
    assert (json.loads(row.input)["value"], row.overlap) == ("kept", "skip")


def test_buttons_pause_resume_run_and_remove_with_a_reason(clockmaker) -> None:
    """D13, E12: through the service, and the reason stands where the timer is."""
    row = made()
    assert told(confirm(clockmaker, "timer", "pause", row.pk, reason="too loud")) == ["1 paused."]
    row.refresh_from_db()
    assert (row.paused_by, row.paused_reason) == ("user:clockmaker", "too loud")
    assert told(confirm(clockmaker, "timer", "resume", row.pk)) == ["1 resumed."]
    assert told(confirm(clockmaker, "timer", "resume", row.pk)) == ["0 resumed, 1 skipped (1 timer not paused)."]
    assert told(confirm(clockmaker, "timer", "run", row.pk, reason="they asked")) == ["1 fired."]
    fired = Firing.objects.get()
    assert (fired.by, fired.detail, fired.manual) == ("user:clockmaker", "they asked", True)
    assert "nightly" in clockmaker.get(url("timer") + "?state=active").content.decode()
    assert "0 timers" in clockmaker.get(url("timer") + "?state=paused").content.decode()
    assert clockmaker.get(url("firing") + "?outcome=refused").status_code == 200
    listed = clockmaker.get(url("firing") + f"?timer={row.pk}").content.decode()
    assert "nightly" in listed
    assert "0 firings" in clockmaker.get(url("firing") + "?timer=0197c000-0000-7000-8000-000000000000").content.decode()
    assert clockmaker.get(url("firing", fired.pk, "change")).status_code == 200
    assert told(confirm(clockmaker, "timer", "remove", row.pk)) == ["1 removed."]
    assert "(removed)" in clockmaker.get(url("firing")).content.decode()


def test_what_the_settings_declare_is_looked_at_and_paused_but_not_edited(clockmaker, settings) -> None:
    """D13: neither by its form nor by a button."""
    settings.JOBS = {**settings.JOBS, "TIMERS": {"nightly": {"type": "echo", "cron": "@daily"}}}
    declared.sync()
    row = Timer.objects.get()
    page = clockmaker.get(url("timer", row.pk, "change"))
    assert (page.status_code, b'name="cron"' in page.content) == (200, False)
    assert clockmaker.post(url("timer", row.pk, "change"), form(revision="1")).status_code == 403
    assert told(confirm(clockmaker, "timer", "remove", row.pk)) == ["0 removed, 1 skipped (1 timer declared)."]
    assert told(confirm(clockmaker, "timer", "pause", row.pk)) == ["1 paused."]


def test_where_only_conductors_enqueue_a_form_is_no_way_around(clockmaker) -> None:
    """D2: the demand binds whoever manages timers as well."""
    tenancy.demand_grant(tenancy.workspace(), True, by="test")
    answer = clockmaker.post(url("timer", "add"), form(), follow=True)
    assert told(answer) == ["Here only conductors enqueue, and this caller is none."]
    assert not Timer.objects.exists()


def test_the_statements_of_the_list_do_not_grow_with_its_rows(clockmaker) -> None:
    """DESIGN 5: what each did last comes with the rows."""
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert clockmaker.get(url("timer")).status_code == 200
        return len(queries)

    made()
    few = count()
    for n in range(5):
        row = timers.put(tenancy.tenant(tenancy.workspace(), None), f"t{n}", Draft("echo", every_s=60), by="x")
        timers.run_now(row, by="x")
    assert count() == few
