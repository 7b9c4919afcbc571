"""Definitions that say for how long their ended jobs are kept."""

from __future__ import annotations

from typing import Any

from jobs import enqueue, job

HOUR = 3_600.0


@job("kept-for-ever", isolated=False, retention=None)
def kept_for_ever(run: Any) -> None:
    """Never deleted by age."""


@job("kept-for-an-hour", isolated=False, retention=HOUR)
def kept_for_an_hour(run: Any) -> None:
    """Deleted an hour after its end."""


def published_links(tenant: Any) -> list[str]:
    """Why a tenant cannot be deleted, as a site would say it (B38)."""
    return [f"2 published links of {tenant.subject}"] if tenant.subject == "published" else []


@job("continues", isolated=False)
def continues(run: Any, tenant: str) -> None:
    """Enqueues for a tenant (B37)."""
    enqueue("echo", {}, tenant=tenant)


def _commit(run: Any, artifact: Any, commit: Any) -> None:
    commit()


@job("publishes", isolated=False, publish=_commit)
def publishes(run: Any) -> str:
    """Completes by its hook (B33)."""
    return "published"


def _carry_on(ended: Any) -> None:
    enqueue("echo", {}, tenant=ended.tenant)


@job("carried-on", isolated=False, on_ended=_carry_on)
def carried_on(run: Any) -> None:
    """Is followed by another job of its tenant (B34)."""
