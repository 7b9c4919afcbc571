"""Texts that become a script where a page forgets to escape them, and rows that carry one in each of their words."""

from __future__ import annotations

import json
import uuid
from html.parser import HTMLParser
from typing import Any

from django.db import connection, models

from jobs.models import (
    Attempt,
    AttemptLog,
    BulkOperation,
    Command,
    DeadLetter,
    Erasure,
    Job,
    Limits,
    Worker,
    Workspace,
)
from jobs.services import keys, tenancy
from tests.driver import Driver

CORPUS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"><img src=x onerror=alert(1)>",
    "'><svg onload=alert(1)>", "</script><script>alert(1)</script>", "</pre><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>", "</title><script>alert(1)</script>",
    "<svg><script>alert(1)</script></svg>", "javascript:alert(1)", "\" onmouseover=\"alert(1)",
    "' autofocus onfocus='alert(1)", "<iframe srcdoc='<b>'>", "<a href=javascript:alert(1)>x</a>",
    "{{ 7|add:7 }}{% debug %}", "{% load static %}", "${alert(1)}", "<!--<img src=x>",
    "]]><img src=x onerror=alert(1)>", "&lt;img src=x&gt;", "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content=0>", "<base href=//evil.example/>", "\u202e<img src=x>\u202d",
    "<form action=//e>",
)
# Words that the house or the database chooses.
_FIXED = {"state", "verb", "gate", "kind", "outcome", "parked", "resolution", "duration_scope", "singleton",
          "credential", "exclusive_group_scope", "about"}
_JSON = {"input", "checkpoint", "progress", "payload", "value"}


def rows(driver: Driver, word: str) -> dict[str, Any]:
    """A row of every model with this word in each column that holds text: model, key."""
    mark = uuid.uuid4().hex[:8]
    job_id = driver.enqueue("echo", tenant=f"t{mark}", target=mark, job_id=mark)
    driver.fail(driver.claim_one(), retryable=False)
    job = Job.objects.get(pk=job_id)
    attempt, letter = Attempt.objects.get(job_id=job_id), DeadLetter.objects.get(job_id=job_id)
    workspace = Workspace.objects.create(slug=mark)
    worker = Worker.objects.create(name="w", host="h", pid=1, slots=1, worker_groups=[word], queues=[word],
                                   types=[word[:80]])
    key, _ = keys.make(tenancy.workspace(), "k", ["read"], worker_groups=[word[:64]])
    command = Command.objects.create(job=job, kind="steer", payload="{}", payload_hash=b"", by="b",
                                     tenant_id=job.tenant_id)
    AttemptLog.objects.create(attempt=attempt, lines=word, dropped=0)
    bulk = BulkOperation.objects.create(token=uuid.uuid4(), verb="discard", by="b", reason="r", upto=0, expected=0,
                                     skipped={word: 1}, end="e", ended_at=job.created_at)
    gone = Erasure.objects.create(verb="redact", workspace_id=job.workspace_id, tenant_id=job.tenant_id, by="b",
                                  reason="r", phase="p", counts={word: 1}, end="e", ended_at=job.created_at)
    limits = Limits.objects.create(workspace_id=job.workspace_id, tenant_id=job.tenant_id)
    with connection.cursor() as cursor:
        body = json.dumps({"by": word, "reason": word, "type": word, "to": "failed", "code": word})
        cursor.execute("INSERT INTO jobs_receipt (job_id, number, kind, at, body, hash) VALUES (%s, 9, 'job.failed',"
                       " now(), %s, '')", [job_id, body])
        cursor.execute("INSERT INTO jobs_artifact (job_id, value, hash, created_at) VALUES (%s, %s, '', now())",
                       [job_id, json.dumps({word: [word]})])
        cursor.execute("INSERT INTO jobs_leader (duty, holds) VALUES (%s, 0)", [f"{word}{mark}"[:64]])
        cursor.execute("UPDATE jobs_attempt SET worker_id = %s WHERE job_id = %s", [worker.pk, job_id])
    for row in (job, attempt, letter, workspace, worker, key, command, bulk, gone, job.tenant, job.target):
        _poison(row, word, mark)
    return {"job": job.pk, "attempt": attempt.pk, "deadletter": letter.pk, "workspace": workspace.pk,
            "worker": worker.pk, "key": key.pk, "command": command.pk, "tenant": job.tenant_id,
            "target": job.target_id, "artifact": job.pk, "limits": limits.pk, "bulkoperation": bulk.pk,
            "erasure": gone.pk,
            "leader": f"{word}{mark}"[:64]}


def _poison(row: Any, word: str, mark: str) -> None:
    said: dict[str, Any] = {}
    for column in row._meta.fields:
        if column.name in _FIXED or not isinstance(column, models.CharField | models.TextField):
            continue
        if column.name in _JSON:
            said[column.name] = json.dumps({"stage": word, "event": word, word: word})
        else:
            unique = column.unique or column.name in ("external_id", "idempotency_key", "key", "subject")
            said[column.name] = f"{word}{mark if unique else ''}"[-(column.max_length or 9_999):]
    with connection.cursor() as cursor:
        sets = ", ".join(f'"{name}" = %s' for name in said)
        cursor.execute(f"UPDATE {row._meta.db_table} SET {sets} WHERE id = %s", [*said.values(), row.pk])


class Reader(HTMLParser):
    """What a browser would make of a page: elements and attributes that could run something, and the text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        for name, value in said.items():
            if name.startswith("on") or name in ("srcdoc", "style"):
                self.faults.append(f"<{tag} {name}={value!r}>")
            if name in ("href", "src", "action", "formaction") and ":" in value.partition("/")[0].partition("?")[0]:
                self.faults.append(f"<{tag} {name}={value!r}>")
            if name in ("href", "src", "action") and value.startswith("//"):
                self.faults.append(f"<{tag} {name}={value!r}>")
        if tag in ("iframe", "base", "style", "object", "embed") or (tag == "script" and "src" not in said):
            self.faults.append(f"<{tag}>")
        if tag == "img" and not said.get("src", "").startswith("/static/"):
            self.faults.append(f"<img {said}>")
        if tag == "meta" and "http-equiv" in said:
            self.faults.append(f"<meta {said}>")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    """The page as a browser sees it."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


