"""Which jobs a word names: exactly, and by indexes alone, however many jobs there are."""

from __future__ import annotations

import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import UUIDField

from jobs.conf import registry
from jobs.models import Job, Target, Tenant

HELP = ("Exactly: our id, the caller's job_id, an idempotency key; of jobs that have not ended also a session key or a "
        "target's key.")
# Keys are unique within a tenant: each tenant's is looked up.
MOST_TENANTS = 20_000
MOST = 1_000


def as_uuid(word: str) -> uuid.UUID | None:
    """The id that a word is."""
    try:
        return UUIDField().to_python(word.strip())  # type: ignore[no-any-return]
    except ValidationError:
        return None


def as_number(word: str) -> int | None:
    """The number that a word is."""
    word = word.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) < 19 else None


def jobs(word: str) -> list[Any]:
    """The ids of the jobs that this word names, at most 1,000."""
    word = word.strip()
    if not word or not word.isprintable():
        return []
    if (id_ := as_uuid(word)) is not None:
        return [id_]
    tenants = list(Tenant.objects.order_by("pk").values_list("pk", flat=True)[:MOST_TENANTS])
    theirs = Job.objects.filter(tenant_id__in=tenants)
    keys = [word, *(f"{definition.type}:{word}" for definition in registry())]
    targets = list(Target.objects.filter(tenant_id__in=tenants, key__in=keys).values_list("pk", flat=True)[:MOST])
    found: dict[Any, None] = {}
    for some in (theirs.filter(external_id=word), theirs.filter(idempotency_key=word),
                 theirs.filter(session_key=word, ended_at=None),
                 Job.objects.filter(target_id__in=targets, ended_at=None)):
        found |= dict.fromkeys(some.values_list("pk", flat=True)[:MOST])
    return list(found)[:MOST]
