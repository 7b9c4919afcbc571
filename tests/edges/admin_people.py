"""The admin's tests: people, addresses, and a seed of many rows by SQL."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

import jobs.admin  # noqa: F401  what is registered does not depend on who was first to ask for a page
from tests.pages.people import person

MODELS = ("job", "attempt", "artifact", "deadletter", "target", "command", "claimline", "worker", "leader", "workspace",
          "tenant", "limits", "key", "bulkoperation", "erasure", "owner", "delivery", "deliverytry", "callbackhost",
          "callbacksecret", "throttle", "grant", "timer", "firing")
# Each of them alone; the permissions that it has.
PEOPLE: dict[str, tuple[str, ...]] = {
    "nobody": (), "viewer": ("view_job",), "reader": ("view_job", "view_payload"),
    "canceller": ("view_job", "cancel_job"), "pauser": ("view_job", "pause_job"),
    "requeuer": ("view_job", "requeue_job"), "discarder": ("view_job", "discard_job"),
    "archivist": ("view_job", "archive_tenant"), "eraser": ("view_job", "erase"),
    "limiter": ("manage_limits",), "keeper": ("manage_keys",), "vaulter": ("manage_owners",),
    "clockmaker": ("manage_timers",),
}


@pytest.fixture(autouse=True)
def quick(database, settings, monkeypatch):
    """An empty log; passwords that cost nothing; pages without the bar of models, which has no text of any row."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr(admin.site, "enable_nav_sidebar", False)
    LogEntry.objects.all().delete()


def somebody(name: str) -> Client:
    """A client of one of them; `stranger` is not signed in, `root` is a superuser, `outsider` is no staff."""
    client = Client()
    if name == "root":
        client.force_login(person("root", superuser=True))
    elif name == "outsider":
        client.force_login(person("outsider", "view_job", "cancel_job", staff=False))
    elif name != "stranger":
        client.force_login(person(name, *PEOPLE[name]))
    return client


def url(model: str, *rest: Any) -> str:
    """`/admin/jobs/<model>/<rest>/`."""
    return "/".join(["/admin/jobs", model, *map(str, rest)]) + "/"


def act(client: Client, model: str, action: str, *ids: Any, across: bool = False, query: str = "") -> Any:
    """Select rows of a list and press Go."""
    return client.post(url(model) + query, {"action": action, "index": "0", "_selected_action": list(map(str, ids)),
                                            "select_across": "1" if across else "0"})


def confirm(client: Client, model: str, action: str, *ids: Any, reason: str = "because", **more: Any) -> Any:
    """Confirm what was previewed."""
    return client.post(url(model, "answer", action), {"ids": ",".join(map(str, ids)), "reason": reason, **more},
                       follow=True)


def told(answer: Any) -> list[str]:
    """The messages of a page."""
    return [str(message) for message in answer.context["messages"]]


def seed(jobs: int, letters: int) -> None:
    """So many ended jobs over a month, one in a hundred failed and the oldest failed with letters; analysed."""
    with connection.cursor() as cursor:
        cursor.execute(_JOBS, [jobs, jobs])
        cursor.execute(_ATTEMPTS, [])
        cursor.execute(_LETTERS, [letters])
        cursor.execute("ANALYZE jobs_job, jobs_attempt, jobs_dead_letter", [])


_JOBS = """INSERT INTO jobs_job (id, workspace_id, tenant_id, type, version, queue, worker_group, origin, priority,
    input, input_hash, fingerprint, external_id, idempotency_key, singleton, state, available_at, created_at,
    started_at, ended_at, base_delay_ms, max_delay_ms, lapse_counts, max_lapses, dead_letter, lease_ms, duration_scope,
    strict_lease, credential, claims, chain, chain_claims, failures, lapses, releases, interruptions, pauses,
    checkpoint_number, revision, number, head)
  SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n %% 4096), 3, '0')
      || '8' || lpad(to_hex(n), 15, '0'))::uuid,
    t.workspace_id, t.id, CASE n %% 5 WHEN 0 THEN 'echo' ELSE 'breaks' END, 1, 'collect', 'default', 'user', 0,
    '{"n":' || n || ',"text":"' || repeat('x', 200) || '"}', sha256('x'), sha256('y'), 'caller-' || n, 'key-' || n,
    'allow', CASE WHEN n %% 100 = 0 THEN 'failed' ELSE 'completed' END, at, at, at, at, 5000, 300000, true, 10, true,
    30000, 'attempt', false, 'none', 1, 1, 1, 0, 0, 0, 0, 0, 0, 3, 3, sha256('h')
  FROM (SELECT n, now() - interval '30 days' + n * (interval '30 days' / %s) AS at
        FROM generate_series(1, %s) n) rows, jobs_tenant t WHERE t.subject IS NULL"""
_ATTEMPTS = """INSERT INTO jobs_attempt (id, job_id, number, chain, leased_at, lease_until, ended_at, outcome)
  SELECT gen_random_uuid(), id, 1, 1, created_at, created_at, ended_at,
    CASE state WHEN 'failed' THEN 'failed' ELSE 'completed' END
  FROM jobs_job WHERE external_id LIKE 'caller-%%' ON CONFLICT DO NOTHING"""
_LETTERS = """INSERT INTO jobs_dead_letter (job_id, workspace_id, tenant_id, type, chain, reason, reason_code,
    attempt_count, opened_at) SELECT id, workspace_id, tenant_id, type, 1, 'attempts_exhausted', 'it_broke', 5, ended_at
  FROM jobs_job ORDER BY id LIMIT %s"""
