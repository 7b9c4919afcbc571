"""Lists that cost the same however much there is: pages by key, a bounded look for filters, estimates for totals.

A filter that few rows pass would make the database look through all of them: a narrowed list looks at so many rows
a page, says how far it looked, and offers to look further.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Model, Q, QuerySet

from jobs.admin import dates

OLDER, NEWER = "older", "newer"
# Rows that a narrowed list looks at for one page: some tens of milliseconds.
LOOK = 50_000

Place = tuple[Any, ...]


class KeysetList(ChangeList):
    """A change list whose pages begin at a key. Links carry the key; nothing is counted and nothing skipped."""

    model_admin: Any
    filter_specs: Any
    older: str | None = None
    newer: str | None = None
    looked: int | None = None
    looked_to: datetime | None = None
    estimate: int | None = None
    hierarchy: dates.Hierarchy | None = None

    def get_filters_params(self, params: Any = None) -> Any:
        """What narrows the list by filters."""
        found = super().get_filters_params(params)
        found.pop(dates.PARAMETER, None)
        return found

    def get_ordering(self, request: Any, queryset: Any) -> list[Any]:
        """Always by key, newest first: any other order would sort the table."""
        return [f"-{key}" for key in self.model_admin.keys]

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet:
        """Everything that the filters, the date and the search let through."""
        for name in (OLDER, NEWER):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        self.period = self._period()
        found = super().get_queryset(request, exclude_parameters)
        if self.model_admin.heavy:
            found = found.defer(*self.model_admin.heavy)
        return self._dated(found)

    def _period(self) -> dates.Period:
        word = self.params.get(dates.PARAMETER)
        if word is None or not self.model_admin.dated:
            return dates.Period()
        try:
            return dates.read(word)
        except ValueError as error:
            raise IncorrectLookupParameters(error) from error

    def _dated(self, found: QuerySet) -> QuerySet:
        if not self.period.parts:
            return found
        low, high = dates.ids(self.period)
        column = self.model_admin.dated
        return found.filter(**{f"{column}__gte": low, f"{column}__lt": high})

    # --- one page ---------------------------------------------------------------------------------------------------

    def get_results(self, request: Any) -> None:
        """The rows of this page, and where the pages beside it begin."""
        place, back = self._asked(request)
        found = self.queryset if place is None else self.queryset.filter(self._beyond(place, back))
        edge = None
        if self._may_be_long():
            edge = self._edge(place, back)
            if edge is not None:
                found = found.filter(self._up_to(edge, back))
        found = found.reverse() if back else found
        rows = list(found[: self.list_per_page + 1])
        more, rows = len(rows) > self.list_per_page, rows[: self.list_per_page]
        if back:
            rows.reverse()
        self._link(rows, place, back, None if more else edge, more)
        self._count(rows, place)
        self._bar()

    def _asked(self, request: Any) -> tuple[Place | None, bool]:
        for name in (OLDER, NEWER):
            if name in request.GET:
                return self._read(request.GET[name]), name == NEWER
        return None, False

    def _link(self, rows: list[Any], place: Place | None, back: bool, edge: Place | None, more: bool) -> None:
        first = self._place(rows[0]) if rows else place
        last = self._place(rows[-1]) if rows else place
        on, beside = more or edge is not None, place is not None
        older, newer = (beside, on) if back else (on, beside)
        if edge is not None:
            # Nothing more within the rows that were looked at: the next page begins where they end.
            first, last = (edge, last) if back else (first, edge)
            self.looked, self.looked_to = LOOK, dates.made(edge[0])
        if older and last is not None:
            self.older = self._to(OLDER, last)
        if newer and first is not None:
            self.newer = self._to(NEWER, first)

    def _to(self, name: str, place: Place) -> str:
        return self.get_query_string({name: "~".join(v.isoformat() if isinstance(v, datetime) else str(v)
                                                     for v in place)})

    @property
    def estimate_said(self) -> str:
        """With its thousands apart, and no more digits than are known."""
        about = self.estimate or 0
        return f"{round(about, 2 - len(str(about))) if about >= 1_000 else about:,}"

    @property
    def newest(self) -> str:
        """The first page."""
        return self.get_query_string()

    def _count(self, rows: list[Any], place: Place | None) -> None:
        whole = place is None and self.older is None
        self.result_list = rows
        # One more than is shown stands for more: nobody counts them.
        self.result_count = self.full_result_count = len(rows) + (0 if whole else 1)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.multi_page = False
        self.whole = whole
        if not whole and not self.query and not self.has_active_filters and not self.period.parts:
            self.estimate = estimated(self.model)

    def _bar(self) -> None:
        column = self.model_admin.dated
        if column:
            ids = self.model._default_manager.values_list(column, flat=True)
            first, last = ids.order_by(column).first(), ids.order_by(f"-{column}").first()
            self.hierarchy = dates.hierarchy(self.period, dates.made(first), dates.made(last))

    @property
    def date_choices(self) -> list[tuple[str, str]]:
        """The choices of the hierarchy: title and address."""
        choices = self.hierarchy.choices if self.hierarchy else []
        return [(c.title, self.get_query_string({dates.PARAMETER: c.word})) for c in choices]

    @property
    def date_back(self) -> tuple[str, str] | None:
        """The way out of the chosen period: title and address."""
        if self.hierarchy is None or self.hierarchy.back is None:
            return None
        back = self.hierarchy.back
        return back.title, self.get_query_string({dates.PARAMETER: back.word or None})

    # --- looking only so far ----------------------------------------------------------------------------------------

    def _may_be_long(self) -> bool:
        """Whether rows that are not shown may have to be read: a filter narrows, and no index bounds what is left."""
        active = [spec for spec in self.filter_specs if spec.value() is not None]
        return bool(active) and not self.query and not any(spec.bounded for spec in active)

    def _edge(self, place: Place | None, back: bool) -> Place | None:
        """The last row to look at; None where fewer are left."""
        rows = self._dated(self.root_queryset.select_related(None).order_by(*self.get_ordering(None, None)))
        if place is not None:
            rows = rows.filter(self._beyond(place, back))
        rows = rows.reverse() if back else rows
        return rows.values_list(*self.model_admin.keys)[LOOK - 1 : LOOK].first() if not rows.query.is_empty() else None

    # --- keys -------------------------------------------------------------------------------------------------------

    def _beyond(self, place: Place, upwards: bool) -> Q:
        """Rows strictly on one side of a place, as an index reads them."""
        keys = self.model_admin.keys
        op = "gt" if upwards else "lt"
        sides = [Q(**{**dict(zip(keys[:n], place[:n], strict=True)), f"{key}__{op}": place[n]})
                 for n, key in enumerate(keys)]
        return Q(**{f"{keys[0]}__{op}e": place[0]}) & reduce(operator.or_, sides) if len(keys) > 1 else sides[0]

    def _up_to(self, edge: Place, upwards: bool) -> Q:
        """Rows not behind the edge. The first key bounds the index; an OR alone would filter all that follows."""
        keys = self.model_admin.keys
        bound = Q(**{f"{keys[0]}__{'lte' if upwards else 'gte'}": edge[0]})
        at = Q(**dict(zip(keys, edge, strict=True)))
        return bound & (self._beyond(edge, not upwards) | at) if len(keys) > 1 else bound

    def _place(self, row: Any) -> Place:
        return tuple(getattr(row, key) for key in self.model_admin.keys)

    def _read(self, word: str) -> Place:
        keys: Sequence[str] = self.model_admin.keys
        words = word.split("~")
        if len(words) != len(keys) or not word.isprintable():
            raise IncorrectLookupParameters("no such page")
        try:
            return tuple(self._field(key).to_python(part) for key, part in zip(keys, words, strict=True))
        except ValidationError as error:
            raise IncorrectLookupParameters(error) from error

    def _field(self, key: str) -> Any:
        return self.lookup_opts.pk if key == "pk" else self.lookup_opts.get_field(key)


def estimated(model: type[Model]) -> int | None:
    """About how many rows a table has, as PostgreSQL last noted; None where it never did."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)", [model._meta.db_table])
        row = cursor.fetchone()
    return int(row[0]) if row and row[0] > 0 else None
