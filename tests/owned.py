"""Definitions that run under their tenant's owner, and a resolver whose store is a folder of files."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from jobs import JobError, job
from jobs.models import Owner
from jobs.registry import external
from jobs.schemas import Opaque
from jobs.services import owners, tenancy
from tests.definitions import trace

STORE = "TEST_OWNERS_STORE"
SECRET = "s3cr3t-\"quoted\"-\u00e9-9f8e7d6c5b"
log = logging.getLogger("tests.owned")


def resolve(reference: str, *, tenant: str | None, job_id: str) -> Any:
    """The content of a file; `broken` raises what quotes a secret."""
    if reference == "broken":
        raise RuntimeError(f"the vault said {SECRET}")
    folder = os.environ.get(STORE)
    if folder is None:
        return {"plain": SECRET, "none": None, "number": 5, "empty": ""}.get(reference, f"secret-of-{reference}")
    found = Path(folder) / reference
    return found.read_text() if found.exists() else None


def leak(run: Any, how: str) -> Any:
    """Say the credential in a way that is kept, if nobody takes it out."""
    secret = run.credential
    match how:
        case "log":
            log.info("have %s", secret, extra={"seen": {"it": secret}})
            if run.definition.executor == "isolated":
                # In a thread these are the worker's own streams, and nobody's business.
                print("printed", secret)
                sys.stderr.write(f"to stderr {secret}\n")
        case "raise":
            raise ValueError(f"{'x' * 4_000}{secret}{'y' * 4_000} and {secret}")
        case "code":
            raise JobError("not_allowed", f"refused with {secret}", retryable=False)
        case "artifact":
            return {"token": secret}
        case "checkpoint":
            run.checkpoint({"seen": secret})
        case "wait":
            run.wait(60)
            run.check()
    return "done"


@job("owned", credential="owner", isolated=False)
async def owned(run: Any, path: str = "") -> str:
    """Answers how long its credential is."""
    trace(path, f"{run.job_id} {run.claims} {run.credential}")
    return str(len(run.credential))


@job("owned-thread", credential="owner", isolated=False, retry=None)
def owned_thread(run: Any, how: str = "", path: str = "") -> str | dict[str, str]:
    """Leaks in a thread."""
    trace(path, f"{run.job_id} {run.claims} {run.credential}")
    return leak(run, how)


@job("owned-apart", credential="owner", retry=None)
def owned_apart(run: Any, how: str = "", path: str = "") -> str | dict[str, str]:
    """Leaks in a child."""
    trace(path, f"{run.job_id} {run.claims} {run.credential}")
    return leak(run, how)


kept_from = external("owned-outside", worker_group="runners", input=Opaque(), artifact=Opaque(), credential="owner")
shared = external("owned-shared", worker_group="runners", input=Opaque(), artifact=Opaque(), credential="owner",
                  share_credential=True)


def put(reference: str = "plain", tenant: str | None = None, **more: Any) -> Owner:
    """The owner of a tenant of the default workspace."""
    of = tenancy.tenant(tenancy.workspace(), tenant, make=True)
    return owners.put(of, reference, by="test", **more)
