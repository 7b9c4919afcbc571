"""Dead letters as an operator reads them: in clusters, in lists, one with all that led to it. All is bounded.

Operators stand outside of every tenant; what callers of the API may see is `selectors`' business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.core import signing
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Left, Right

from jobs import selectors
from jobs.errors import Invalid
from jobs.models import Attempt, DeadLetter, Tenant, Workspace
from jobs.redaction import whole
from jobs.selectors import Page, Scope, known, subjects
from jobs.services.operations import patiently
from jobs.store import matching
from jobs.store.matching import Match

PAGE = 50
SAMPLE = 10
MESSAGE = 400
ATTEMPTS = 20


class Line(NamedTuple):
    """A letter as a line of a list: with its tenant's subject, and the beginning and the end of its message."""

    letter: DeadLetter
    tenant: str | None
    message: str


class Cluster(NamedTuple):
    """Letters that failed alike: how many, since when, whose, and the newest of them."""

    name: str
    size: int
    first_at: datetime
    sample: Line
    tenants: int
    top: list[str | None]


class Clusters(NamedTuple):
    """A page of clusters, and of how many clusters and letters; `cut`: only the newest letters were grouped."""

    shown: list[Cluster]
    clusters: int
    letters: int
    cut: bool
    more: bool


def clusters(match: Match, order: str = "size", page: int = 1) -> Clusters:
    """The clusters of the open letters that match, by `size` or `latest`. Raises TooSlow."""
    found = patiently(lambda: matching.groups(match, order, PAGE + 1, (page - 1) * PAGE))
    shown = found.shown[:PAGE]
    lines = {line.letter.pk: line for line in _lines([g.last for g in shown])}
    first = dict(DeadLetter.objects.filter(pk__in=[g.first for g in shown]).values_list("pk", "opened_at"))
    names = subjects({pk for g in shown for pk in g.top})
    # One that was deleted since it was grouped is left out.
    told = [Cluster(g.cluster, g.size, first[g.first], lines[g.last], g.tenants, [names.get(pk) for pk in g.top])
            for g in shown if g.last in lines and g.first in first]
    return Clusters(told, found.clusters, found.letters, found.cut, len(found.shown) > PAGE)


class Grown(NamedTuple):
    """A cluster, by how many letters it grew (`more`: at least), and the newest of them."""

    name: str
    letters: int
    more: bool
    sample: Line


def grown(since: datetime, most: int = 3) -> list[Grown]:
    """The clusters that grew most since then, among the newest 1,000 open letters. The caller sets the time limit."""
    found = matching.grown(since, most)
    lines = {line.letter.pk: line for line in _lines([last for _, _, last in found])}
    return [Grown(name, n, n >= matching.NEWEST, lines[last]) for name, n, last in found if last in lines]


def listed(match: Match, before: int | None = None, limit: int = PAGE) -> tuple[list[Line], int | None]:
    """The newest letters that match below `before`, and where the next page begins (None: there is none)."""
    ids = patiently(lambda: matching.newest(match, before, limit + 1))
    return _lines(ids[:limit]), ids[limit - 1] if len(ids) > limit else None


def page(seen: Scope, match: Match, *, limit: int, cursor: str | None = None) -> Page:
    """The open letters of a scope that match, with their jobs, newest first (C23, C25).

    The cursor is signed for this scope and this filter. Raises Invalid invalid_cursor, TenantNotFound and TooSlow.
    """
    narrowed = match._replace(workspace_id=seen.workspace_id, tenant_id=known(seen).tenant_id)
    signer = signing.Signer(salt="jobs.letters:" + hashlib.sha256(repr(tuple(narrowed)).encode()).hexdigest())
    before = None if cursor is None else _unsigned(signer, cursor)
    ids = patiently(lambda: matching.newest(narrowed, before, limit + 1))
    return Page(selectors.letters(seen, ids[:limit]),
                signer.sign(str(ids[limit - 1])) if len(ids) > limit else None)


def _unsigned(signer: signing.Signer, cursor: str) -> int:
    try:
        return int(signer.unsign(cursor))
    except (signing.BadSignature, ValueError):
        raise Invalid("This cursor does not belong to this list.", field="cursor", code="invalid_cursor") from None


def counted(match: Match) -> int:
    """How many open letters match, up to one more than 100,000. Raises TooSlow."""
    return patiently(lambda: matching.count(match))


def last(match: Match) -> int | None:
    """The newest letter that matches."""
    found = patiently(lambda: matching.newest(match, None, 1))
    return found[0] if found else None


def _lines(ids: Sequence[int]) -> list[Line]:
    """These letters in this order, in two statements."""
    last = Attempt.objects.filter(job_id=OuterRef("job_id"), chain=OuterRef("chain")).order_by("-number")
    found = {d.pk: d for d in DeadLetter.objects.filter(pk__in=ids)
             .annotate(message=Subquery(last.values(text=Left("message", MESSAGE))[:1]),
                       end=Subquery(last.values(text=Right("message", MESSAGE))[:1]))}
    names = subjects({d.tenant_id for d in found.values()})
    return [Line(found[pk], names.get(found[pk].tenant_id), _message(found[pk])) for pk in ids if pk in found]


def _message(letter: Any) -> str:
    """The beginning, and of what is longer the end too: a traceback says there what was raised."""
    begin, end = letter.message or "", letter.end or ""
    return begin if len(begin) < MESSAGE else f"{begin}\n{end}"


class Told(NamedTuple):
    """One letter with its job, its tenant, and the latest attempts of its chain, the last of them first."""

    letter: DeadLetter
    tenant: Tenant
    attempts: list[Attempt]
    message: str

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.letter.resolved_at is None


def one(pk: int) -> Told | None:
    """This letter, if it is there."""
    letter = DeadLetter.objects.select_related("job").filter(pk=pk).first()
    if letter is None:
        return None
    tenant = Tenant.objects.select_related("workspace").get(pk=letter.tenant_id)
    attempts = list(Attempt.objects.filter(job_id=letter.job_id, chain=letter.chain).select_related("worker", "key")
                    .order_by("-number")[:ATTEMPTS])
    return Told(letter, tenant, attempts, next((a.message for a in attempts if a.message), "") or "")


def pretty(text: str) -> str:
    """A stored input, indented for people, its secrets left out (A64); as it is where it does not read."""
    try:
        return json.dumps(whole(json.loads(text)), indent=2, ensure_ascii=False, sort_keys=True)
    except ValueError:
        return text


def places(workspace: str | None, subject: str | None) -> tuple[int | None, list[int]]:
    """A workspace by its slug and the tenants by this subject in it, in any of them where none is named."""
    place = Workspace.objects.filter(slug=workspace).values_list("pk", flat=True).first() if workspace else None
    if not subject:
        return place, []
    found = Tenant.objects.filter(subject=subject)
    return place, list((found.filter(workspace_id=place) if place else found).values_list("pk", flat=True)[:2])


def workspaces(most: int = 100) -> Iterable[str]:
    """The slugs to choose from."""
    return Workspace.objects.order_by("slug").values_list("slug", flat=True)[:most]
