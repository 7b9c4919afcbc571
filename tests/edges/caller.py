"""A caller of the API with a key, and what its answers must be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from django.test import Client

from jobs.models import Job, Key
from jobs.services import keys, tenancy
from tests import database as db
from tests.edges import documented

ALL = tuple(p.value for p in keys.Permission)
TABLES = ("job", "attempt", "receipt", "artifact", "dead_letter", "tenant", "target", "command", "claim_line",
          "owner", "erasure", "bulk_operation", "bulk_item", "tenant_window", "limits", "claim_request",
          "throttle", "delivery", "delivery_try", "callback_secret")
OF_LANES = ("quorum", "lane", "dependency", "job", "receipt")


# Who answers a dead letter, as a key of the workspace has to say (C28).
ATTESTED = {"tenant_subject": "acme", "actor_kind": "user", "actor_ref": "alice"}


class Caller:
    """One key and its client."""

    def __init__(self, name: str = "test", *, permissions: Sequence[str] = ALL, workspace: str | None = None,
                 tenant: str | None = None, worker_groups: Sequence[str] | None = None) -> None:
        place = tenancy.make_workspace(workspace) if workspace else tenancy.workspace()
        owner = tenancy.tenant(place, tenant, make=True) if tenant is not None else None
        self.key: Key
        self.key, self.secret = keys.make(place, name, permissions, tenant=owner, worker_groups=worker_groups)
        self.client = Client()

    def send(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None,
             content_type: str = "application/json", **headers: str) -> HttpResponse:
        """A request as it stands; headers are spelled with underscores."""
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        # Always the same, so that answers can be compared whole.
        told = {"Authorization": f"Bearer {self.secret}", "X-Request-ID": "test",
                **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer = self.client.generic(method, f"/api/v1{path}", data, content_type=content_type,
                                     headers={k: v for k, v in told.items() if v})
        documented.check(method, answer)
        return answer

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.send("POST", path, body, **headers)

    def enqueue(self, type_: str = "outside", **fields: Any) -> dict[str, Any]:
        """One new job, as it was answered."""
        answer = self.post("/jobs", {"type": type_, **fields})
        assert answer.status_code == 202, answer.content
        return answer.json()

    def claim(self, slots: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """The assignments of one claim."""
        answer = self.post("/runtime/claim", {"slots": slots, **fields})
        assert answer.status_code == 200, answer.content
        return answer.json()["assignments"]

    def claim_one(self, **fields: Any) -> dict[str, Any]:
        """The one assignment that there must be."""
        found = self.claim(1, **fields)
        assert len(found) == 1, "nothing to claim"
        return found[0]

    def assignment(self, held: dict[str, Any], verb: str, body: Any = None) -> HttpResponse:
        return self.post(f"/assignments/{held['assignment_id']}/{verb}", body)


def problem(answer: HttpResponse, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """The problem that this answer must be (RFC 9457)."""
    assert answer.status_code == status, (answer.status_code, answer.content[:500])
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Cache-Control"] == "no-store"
    told = answer.json()
    assert told["status"] == status
    assert told["code"] == code, told
    assert {"type", "title", "detail"} <= told.keys()
    if field is not None:
        assert told.get("field") == field, told
    return told


def everything() -> str:
    """A digest of all rows but keys, which note when they were used."""
    names = [*(f"jobs_{name}" for name in TABLES), *(f"lanes_{name}" for name in OF_LANES)]
    parts = [f"coalesce((SELECT string_agg(t::text, '|' ORDER BY t::text) FROM {name} t), '')" for name in names]
    return db.rows(f"SELECT md5({' || '.join(parts)})")[0][0]


def state(job_id: str) -> str:
    return Job.objects.get(pk=job_id).state


def held(api: Caller, **fields: Any) -> dict[str, Any]:
    """One fresh assignment."""
    api.enqueue(**fields)
    return api.claim_one()
