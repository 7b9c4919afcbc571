"""Who may do what in the admin (RELIABILITY 6.1, 6.2 "Admin power"): everybody, every page, every action."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission as DjangoPermission
from django.contrib.contenttypes.models import ContentType

from jobs.models import (
    Artifact,
    Attempt,
    AttemptCap,
    AttemptLog,
    ClaimLine,
    Command,
    DeadLetter,
    Grant,
    Job,
    Key,
    Leader,
    Limits,
    Owner,
    Receipt,
    Target,
    Tenant,
    Worker,
    Workspace,
)
from jobs.services import grants, keys, limits, owners, tenancy, throttles, timers
from jobs.services.timers import Draft
from jobs.states import State
from tests import database as db
from tests.edges.admin_people import MODELS, PEOPLE, act, confirm, quick, somebody, told, url  # noqa: F401
from tests.making import in_state
from tests.pages.people import person

EVERYBODY = ("stranger", "outsider", *PEOPLE, "root")
ROOT = {"view_job", "view_payload", "cancel_job", "pause_job", "requeue_job", "discard_job", "manage_limits",
        "manage_keys", "manage_owners", "manage_timers", "archive_tenant", "erase"}
# Model, action, permission, whether it needs an open dead letter, what the job is in.
ACTIONS = [("job", "cancel", "cancel_job"), ("job", "pause", "pause_job"), ("job", "resume", "pause_job"),
           ("deadletter", "requeue", "requeue_job"), ("deadletter", "discard", "discard_job"),
           ("key", "revoke", "manage_keys"), ("owner", "rotate", "manage_owners"), ("owner", "revoke", "manage_owners"),
           ("throttle", "pause", "manage_limits"), ("throttle", "remove", "manage_limits"),
           ("grant", "take", "manage_keys"), ("timer", "pause", "manage_timers"), ("timer", "run", "manage_timers"),
           ("timer", "remove", "manage_timers")]
# What they do is tested in test_erasure.
ERASING = [("job", "redact", "erase"), ("tenant", "archive", "archive_tenant"), ("tenant", "restore", "archive_tenant"),
           ("tenant", "redact", "erase"), ("tenant", "delete", "erase")]


def rights(name: str) -> set[str]:
    return ROOT if name == "root" else set(PEOPLE.get(name, ()))


def staff(name: str) -> bool:
    return name not in ("stranger", "outsider")


@pytest.fixture
def rows(driver):
    """A row of every kind that a test can make by verbs: model, id."""
    done = in_state(driver, State.COMPLETED, target="a")
    failed = in_state(driver, State.FAILED, target="b")
    workspace = tenancy.workspace()
    limits.set_limits(workspace, tenant_concurrency=3)
    key, _ = keys.make(workspace, "some caller", ["read"])
    throttle = throttles.cap("queue", "chat", 3, by="test")
    timer = timers.put(tenancy.tenant(workspace, None), "nightly", Draft("noop", cron="@daily"), by="test")
    owner = owners.put(tenancy.tenant(workspace, None), "vault/jobs/7", by="test")
    return {
        "job": failed.id, "attempt": Attempt.objects.get(job_id=failed.id).pk, "artifact": done.id,
        "deadletter": DeadLetter.objects.get().pk, "target": Target.objects.first().pk, "workspace": workspace.pk,
        "claimline": ClaimLine.objects.first().pk, "tenant": Tenant.objects.first().pk,
        "limits": Limits.objects.get().pk, "key": key.pk, "owner": owner.pk,
        "throttle": throttle.pk, "timer": timer.pk, "firing": timers.run_now(timer, by="test").pk,
        "grant": grants.give(workspace, "member", by="test", key=key).pk}


def test_every_row_has_a_place_in_the_admin():
    """Rows with a composite key cannot be registered: receipts stand on their job, caps on their attempt."""
    registered = set(admin.site._registry)
    assert {Artifact, Attempt, ClaimLine, Command, DeadLetter, Job, Key, Leader, Limits, Target, Tenant, Worker,
            Workspace} <= registered
    assert AttemptLog in {inline.model for inline in admin.site._registry[Attempt].inlines}
    assert all(model._meta.is_composite_pk for model in (Receipt, AttemptCap))
    assert sorted(m._meta.model_name for m in registered if m._meta.app_label == "jobs") == sorted(MODELS)


def test_the_admin_names_its_rows_in_english():
    """No `deliverys`: what people read in the bar of models and above confirmations."""
    plurals = {str(m._meta.verbose_name_plural) for m in admin.site._registry if m._meta.app_label == "jobs"}
    assert [word for word in plurals if re.search(r"[^aeiou]ys$", word)] == []


@pytest.mark.parametrize("name", EVERYBODY)
def test_everybody_sees_and_does_what_their_permissions_say_and_nothing_else(rows, name):
    """6.2: a viewer who posts an action is refused; nobody adds, changes or deletes, superusers neither."""
    client, may = somebody(name), rights(name)
    manages = {"limits": "manage_limits", "throttle": "manage_limits", "key": "manage_keys", "grant": "manage_keys",
               "owner": "manage_owners", "timer": "manage_timers"}
    before = {job: db.row_hash(job) for job in (rows["job"], rows["artifact"])}
    for model in MODELS:
        sees = "view_job" in may or manages.get(model) in may
        shown = (200 if sees else 403) if staff(name) else 302
        assert client.get(url(model)).status_code == shown, model
        adds = staff(name) and manages.get(model) in may
        assert client.get(url(model, "add")).status_code == (200 if adds else 403 if staff(name) else 302), model
        if model not in rows:
            continue
        page = url(model, rows[model], "change")
        assert client.get(page).status_code == shown, model
        refused = 403 if staff(name) else 302
        if not (model in ("limits", "throttle", "timer") and manages[model] in may):
            assert client.post(page, {"state": "completed", "name": "x"}).status_code == refused, model
        assert client.post(url(model, rows[model], "delete"), {"post": "yes"}).status_code == refused, model
        assert act(client, model, "delete_selected", rows[model]).status_code == refused, model
    job = url("job", rows["job"])
    assert client.get(f"{job}delete/").status_code == (403 if staff(name) else 302)
    assert client.get(f"{job}history/").status_code == ((200 if "view_job" in may else 403) if staff(name) else 302)
    _actions(client, name, may, rows)
    assert {job: db.row_hash(job) for job in before} == before
    assert not LogEntry.objects.exists()


def _actions(client, name, may, rows):
    """Previews for whoever may; each of the steps is refused to everybody else, and changes nothing."""
    for model, action, permission in (*ACTIONS, *ERASING):
        allowed = permission in may and ("view_job" in may or model in ("key", "owner", "throttle", "grant", "timer"))
        preview = act(client, model, action, rows[model])
        asked = client.get(url(model, "answer", action), {"id": rows[model]})
        expected = (200 if allowed else 403) if staff(name) else 302
        assert (preview.status_code, asked.status_code) == (expected, expected), (model, action)
        if not allowed:
            answer = client.post(url(model, "answer", action), {"ids": rows[model], "reason": "because"})
            assert answer.status_code == (403 if staff(name) else 302), (model, action)


@pytest.mark.parametrize(("model", "action", "permission"), ACTIONS)
def test_whoever_holds_the_permission_does_it_and_is_named(rows, driver, model, action, permission):
    """E12, 6.2: a log entry with the reason, a receipt with who did it."""
    waiting = driver.enqueue()
    if action == "resume":
        driver.pause(waiting)
    row = waiting if model == "job" else rows[model]
    client = somebody("nobody")
    client.force_login(person("doer", permission, "view_job"))
    answer = confirm(client, model, action, row, reason="as agreed")
    word = {"cancel": "cancelled", "pause": "paused", "resume": "resumed", "requeue": "requeued",
            "discard": "discarded", "revoke": "revoked", "rotate": "rotated", "remove": "removed", "run": "fired",
            "take": "taken away"}[action]
    assert told(answer) == [f"1 {word}."]
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message, entry.user.username) == (
        str(row), f"{word.capitalize()}: as agreed", "doer")
    if model not in ("key", "owner", "throttle", "grant", "timer"):
        job = waiting if model == "job" else rows["job"]
        receipt = Receipt.objects.filter(job_id=job).order_by("-number").first()
        assert receipt.kind == f"job.{word}"
        assert '"by":"user:doer"' in receipt.body


def test_a_superuser_cannot_edit_a_job_by_an_edited_form(rows):
    """6.2: payload and state are read-only whatever is posted, and whatever permissions Django could give."""
    client = somebody("root")
    before = db.row_hash(rows["job"])
    for extra in ({}, {"_save": "Save"}, {"_saveasnew": "1"}, {"_continue": "1"}):
        body = {"state": "completed", "input": "{}", "reason": "", "priority": "100", **extra}
        assert client.post(url("job", rows["job"], "change"), body).status_code == 403
    bulk = client.post(url("job"), {"form-TOTAL_FORMS": "1", "form-0-state": "completed", "_save": "Save"})
    assert bulk.status_code in (200, 403)
    assert db.row_hash(rows["job"]) == before


def test_permissions_of_djangos_own_making_open_nothing(rows):
    """Even somebody who was given `change` and `delete` of everything there is."""
    user = person("collector", "view_job")
    job = ContentType.objects.get_for_model(Job)
    for codename in ("change_job", "delete_job", "add_job"):
        DjangoPermission.objects.get_or_create(content_type=job, codename=codename, defaults={"name": codename})
    user.user_permissions.set(DjangoPermission.objects.filter(content_type__app_label="jobs").exclude(
        codename__in=["manage_limits", "manage_keys", "manage_owners"]))
    client = somebody("stranger")
    client.force_login(user)
    for model in ("job", "attempt", "deadletter", "key", "limits", "owner"):
        assert client.get(url(model, "add")).status_code == 403
        assert client.post(url(model, rows[model], "change"), {"name": "x"}).status_code == 403
        assert client.post(url(model, rows[model], "delete"), {"post": "yes"}).status_code == 403
    DjangoPermission.objects.filter(content_type=job, codename__in=["change_job", "delete_job", "add_job"]).delete()


def test_delete_is_offered_nowhere(rows):
    client = somebody("root")
    for model in MODELS:
        page = client.get(url(model)).content.decode()
        assert "delete_selected" not in page
        assert "deletelink" not in page


def test_menus_of_whole_tables_are_nobodys(client, database):
    """Django's admin has them for every relation, and counts all rows for each word that is typed."""
    client.force_login(person("root", superuser=True))
    for model, field in (("attempt", "job"), ("job", "tenant"), ("deadletter", "job")):
        asked = {"app_label": "jobs", "model_name": model, "field_name": field, "term": "x"}
        assert client.get("/admin/autocomplete/", asked).status_code == 403


def test_the_index_shows_only_what_may_be_seen(rows):
    """A person without permissions has nothing of jobs to click on."""
    assert "jobs/job/" not in somebody("nobody").get("/admin/").content.decode()
    assert "jobs/limits/" in somebody("limiter").get("/admin/").content.decode()
    assert "jobs/deadletter/" not in somebody("limiter").get("/admin/").content.decode()
    assert "jobs/deadletter/" in somebody("viewer").get("/admin/").content.decode()


# --- limits and keys -------------------------------------------------------------------------------------------------


def test_limits_are_set_through_the_service(driver):
    """C36: bounded as everywhere else, and what waits follows."""
    client = somebody("limiter")
    answer = client.post(url("limits", "add"), {"workspace": "default", "tenant": "acme", "tenant_concurrency": "2"})
    assert answer.status_code == 302
    row = Limits.objects.get()
    assert (row.tenant.subject, row.tenant_concurrency) == ("acme", 2)
    page = url("limits", row.pk, "change")
    driver.enqueue(tenant="acme", exclusive_group="g")
    second = driver.enqueue(tenant="acme", exclusive_group="g")
    assert driver.job(second).gate is None
    assert client.post(page, {"tenant_concurrency": "", "exclusive_group_max": "1"}).status_code == 302
    row.refresh_from_db()
    assert (row.tenant_concurrency, row.exclusive_group_max) == (None, 1)
    assert driver.job(second).gate == "exclusive"
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize(("field", "value"), [
    ("tenant_concurrency", "0"), ("tenant_concurrency", "-1"), ("tenant_concurrency", "2000000001"),
    ("tenant_concurrency", "many"), ("exclusive_group_max", "0"), ("exclusive_group_scope", "planet"),
    ("release_max_delay_s", "0")])
def test_a_limit_that_cannot_be_is_refused_by_its_field(driver, field, value):
    client = somebody("limiter")
    row = limits.set_limits(tenancy.workspace(), tenant_concurrency=5)
    answer = client.post(url("limits", row.pk, "change"), {field: value})
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    row.refresh_from_db()
    assert row.tenant_concurrency == 5


def test_every_limit_can_be_set_and_whose_they_are_cannot(driver):
    client = somebody("limiter")
    row = limits.set_limits(tenancy.workspace(), tenant_concurrency=5)
    assert client.post(url("limits", row.pk, "change"), {"tenant_ceiling": "7", "workspace": "9"}).status_code == 302
    row.refresh_from_db()
    assert (row.tenant_ceiling, row.tenant_concurrency, row.workspace) == (7, None, tenancy.workspace())
    said = {"max_cost_usd_cap": "2.5", "retry_budget": "0", "retry_budget_window_s": "60", "max_attempts_cap": "3"}
    assert client.post(url("limits", row.pk, "change"), said).status_code == 302
    row.refresh_from_db()
    assert (str(row.max_cost_usd_cap), row.retry_budget, row.max_attempts_cap) == ("2.500000000", 0, 3)


@pytest.mark.parametrize(("said", "field"), [
    ({"workspace": "nowhere"}, "workspace"), ({"workspace": ""}, "workspace"),
    ({"workspace": "default", "tenant": "a\tb"}, "tenant"), ({"workspace": "default", "tenant": ""}, "__all__")])
def test_new_limits_name_a_place_that_has_none(driver, said, field):
    limits.set_limits(tenancy.workspace(), tenant_concurrency=5)
    answer = somebody("limiter").post(url("limits", "add"), said)
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors


def test_a_key_is_shown_once_and_stored_nowhere(driver):
    """6.2: in the answer that made it; not in a session, a message, a log entry, a list or its page."""
    client = somebody("keeper")
    answer = client.post(url("key", "add"), {"name": "billing", "workspace": "default", "tenant": "acme",
                                             "permissions": ["read", "enqueue"], "worker_groups": "runners"})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    secret = re.search(r'id="secret">([^<]+)<', answer.content.decode()).group(1)
    key = keys.find(secret)
    assert key is not None
    assert (key.name, key.tenant.subject, key.permissions, key.worker_groups) == (
        "billing", "acme", ["enqueue", "read"], ["runners"])
    half = secret.partition(".")[2]
    everywhere = [client.get(url("key")).content.decode(), client.get(url("key", key.pk, "change")).content.decode(),
                  client.get(url("key", key.pk, "history")).content.decode(), client.get("/admin/").content.decode(),
                  str(dict(client.session)), str(list(LogEntry.objects.values())), str(db.rows("TABLE jobs_key"))]
    assert [place for place in everywhere if half in place] == []
    assert bytes(key.digest).hex() not in "".join(everywhere[:3])


@pytest.mark.parametrize(("said", "field"), [
    ({"permissions": []}, "permissions"), ({"permissions": ["rule"]}, "permissions"), ({"name": ""}, "name"),
    ({"name": "a\u202eb\x07"}, "name"), ({"workspace": "nowhere"}, "workspace"),
    ({"worker_groups": "system"}, "worker_groups"), ({"worker_groups": "default"}, "worker_groups"),
    ({"expires_at_0": "someday"}, "expires_at")])
def test_a_key_that_cannot_be_is_refused_by_its_field(driver, said, field):
    body = {"name": "billing", "workspace": "default", "permissions": ["read"], **said}
    answer = somebody("keeper").post(url("key", "add"), body)
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    assert not Key.objects.exists()


def test_a_revoked_key_is_refused_at_once(driver):
    key, secret = keys.make(tenancy.workspace(), "billing", ["read"])
    client = somebody("keeper")
    assert told(confirm(client, "key", "revoke", key.pk, reason="leaked")) == ["1 revoked."]
    assert keys.find(secret) is None
    assert told(confirm(client, "key", "revoke", key.pk, reason="again")) == [
        "0 revoked, 1 skipped (1 revoked already)."]


# --- owners ----------------------------------------------------------------------------------------------------------


def test_an_owner_is_put_by_a_form_and_its_reference_does_not_come_out(driver):
    """E10, 6.2: through the service; a second one for the tenant takes the first one's place, and is logged."""
    client = somebody("vaulter")
    body = {"workspace": "default", "tenant": "acme", "reference": "vault/jobs/7", "label": "the vault",
            "concurrency": "2", "expires_at_0": "", "expires_at_1": ""}
    assert client.post(url("owner", "add"), body).status_code == 302
    owner = Owner.objects.get()
    assert (owner.tenant.subject, owner.reference, owner.concurrency, owner.generation) == (
        "acme", "vault/jobs/7", 2, 1)
    # No number: as the site says.
    again = {**body, "reference": "vault/jobs/8", "concurrency": ""}
    assert client.post(url("owner", "add"), again).status_code == 302
    assert (Owner.objects.get().generation, Owner.objects.get().concurrency) == (2, None)
    shown = [client.get(url("owner")), client.get(url("owner", owner.pk, "change")),
             client.get(url("owner", owner.pk, "history"))]
    for answer in shown:
        assert answer.status_code == 200
        assert "jobs/8" not in answer.content.decode()
    assert LogEntry.objects.filter(object_id=str(owner.pk)).count() == 2


@pytest.mark.parametrize(("said", "field"), [
    ({"reference": ""}, "reference"), ({"reference": "x" * 501}, "reference"), ({"concurrency": "0"}, "concurrency"),
    ({"label": "a\u0007"}, "label"), ({"expires_at_0": "2001-01-01", "expires_at_1": "00:00"}, "expires_at"),
    ({"workspace": "else"}, "workspace"),
])
def test_an_owner_that_cannot_be_is_refused_by_its_field(driver, said, field):
    """As the service judges it; nothing is written."""
    body = {"workspace": "default", "tenant": "", "reference": "x", "label": "", "concurrency": "", **said}
    answer = somebody("vaulter").post(url("owner", "add"), body)
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    assert not Owner.objects.exists()


def test_roles_are_given_in_the_admin_and_shown_on_the_page_of_their_workspace(rows):
    """E2: by the name of a user or the prefix of a key; what is wrong is said; whoever has a role is given the new one.
    """
    client, ann = somebody("keeper"), person("ann")
    place = Workspace.objects.get(pk=rows["workspace"])
    made = client.post(url("grant", "add"), {"workspace": place.slug, "user": "ann", "role": "assignee"}, follow=True)
    assert made.status_code == 200
    assert "user ann" in made.content.decode()
    client.post(url("grant", "add"), {"workspace": place.slug, "user": "ann", "role": "conductor"})
    assert [(g.role, g.by) for g in Grant.objects.filter(user_id=str(ann.pk))] == [("conductor", "user:keeper")]
    prefix = Key.objects.get(pk=rows["key"]).prefix
    for said, word in (({"user": "nobody-there"}, "no such user"), ({"key": "nothing"}, "no such key"),
                       ({}, "A grant is"), ({"user": "ann", "key": prefix}, "A grant is"),
                       ({"user": "ann", "workspace": "x"}, "workspace")):
        page = client.post(url("grant", "add"), {"workspace": place.slug, "role": "member", **said})
        assert (page.status_code, word in page.content.decode()) == (200, True), said
    page = somebody("viewer").get(url("workspace", rows["workspace"], "change")).content.decode()
    assert "user ann: conductor" in page
    assert f"key some caller ({prefix}): member" in page


def test_a_workspace_is_told_in_the_admin_to_demand_conductors(rows):
    """E2, D2: by whoever may manage keys, with a reason, and back."""
    client, pk = somebody("nobody"), rows["workspace"]
    client.force_login(person("doer", "manage_keys", "view_job"))
    for action, demanded in (("demand", True), ("waive", False)):
        assert told(confirm(client, "workspace", action, pk)) == ["1 changed."]
        assert Workspace.objects.get(pk=pk).create_requires_grant is demanded
    assert somebody("viewer").get(url("workspace", "answer", "demand"), {"id": pk}).status_code == 403
