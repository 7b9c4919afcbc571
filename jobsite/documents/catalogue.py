"""The descriptions of documents as completed jobs left them: a pure read, repeatable and never behind (B34).

A description stays until a newer one completes, whatever is pending or failed meanwhile; of several generations the
newest completed counts, and legacy `summary` artifacts are no descriptions (B16, B44).
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from django.db.models import F

from jobs.conf import conf
from jobs.models import Job
from jobs.states import State
from jobsite.definitions.documents import TYPE, Asked

# Canonical JSON: the keys of an artifact are sorted, so a described one begins with its description.
_MARK = '{"description":'


class Described(NamedTuple):
    """One document's line and where it comes from; `current` is false while newer work is pending or has failed."""

    document: str
    description: str
    revision: int
    source_hash: str
    generator: int
    job_id: str
    described_at: datetime
    current: bool


def descriptions(root: str | Path, tenant: str | None = None) -> list[Described]:
    """The visible descriptions of the documents below a folder, by path."""
    top = str(Path(root).resolve())
    found = (
        Job.objects.filter(
            type=TYPE, state=State.COMPLETED.value, tenant__subject=tenant, tenant__workspace__slug=conf().WORKSPACE,
            target__key__startswith=f"{TYPE}:{top.rstrip('/')}/", artifact__value__startswith=_MARK)
        .order_by("target_id", F("generation").desc()).distinct("target_id")
        .select_related("artifact", "target"))
    # A redacted input says no more which document it was.
    return sorted((_described(job, top) for job in found if job.input), key=lambda d: d.document)


def _described(job: Job, top: str) -> Described:
    asked, said = Asked.model_validate_json(job.input), json.loads(job.artifact.value)
    # It may have been asked about as one of a folder inside or around this one.
    document = f"{asked.folder}/{asked.document}".removeprefix(top).lstrip("/")
    return Described(document, said["description"], asked.revision, asked.source_hash, asked.generator,
                     str(job.pk), job.ended_at or job.created_at,
                     job.target is not None and job.generation == job.target.generation)
