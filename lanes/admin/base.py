"""What the pages of lanes have beyond those of jobs: who acts is the signed-in person, whatever rights it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jobs.admin.answering import AnsweringAdmin, refused
from jobs.models.permissions import Permission
from lanes import selectors
from lanes.actors import Actor


class LanesAdmin(AnsweringAdmin):
    """Rows of lanes."""

    change_list_template = "admin/jobs/change_list.html"
    change_form_template = "admin/jobs/change_form.html"
    dated = "pk"


class Verb:
    """An answer that is a verb of lanes: whoever sees the page may ask, and its grants decide, row by row.

    Neither superusers nor rights over the whole site say anything here (E2, E15).
    """

    permission, batch, danger = Permission.VIEW, 50, False

    def foresee(self, rows: Sequence[Any]) -> dict[Any, str]:
        """None: whose grants will decide is not known here."""
        return {}

    def give(self, rows: Sequence[Any], by: str, reason: str) -> list[str | None]:
        """Through the service, each as it stood when it was shown."""
        who = selectors.principal(by)
        return [self._one(row, who, reason) if who is not None else "role_required" for row in rows]

    def _one(self, row: Any, who: Actor, reason: str) -> str | None:
        return refused(lambda: self.verb_of(row)(by=who, reason=reason))

    def verb_of(self, row: Any) -> Callable[..., object]:
        """The service's verb for one row."""
        raise NotImplementedError


def shown(row: Any) -> int | None:
    """The version that the confirmation showed, where it did."""
    version: int | None = getattr(row, "shown_revision", None)
    return version
