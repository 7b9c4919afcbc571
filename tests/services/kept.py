"""Definitions that say for how long their ended jobs are kept."""

from __future__ import annotations

from typing import Any

from jobs import job

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
