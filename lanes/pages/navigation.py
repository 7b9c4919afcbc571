"""The place of lanes in the head of the console: for those who have a grant, and for nobody else."""

from __future__ import annotations

from typing import Any

from jobs.models import Grant
from jobs.pages import navigation


def has_grant(user: Any) -> bool:
    """Whether somebody is anything anywhere."""
    return Grant.objects.filter(user_id=str(user.pk)).exists()


def place() -> None:
    """Put it there."""
    navigation.add("lanes:board", "Lanes", has_grant)
