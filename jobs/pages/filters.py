"""The filters of the job list: what stands in the URL, read, refused and said back as chips to take away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from django import forms
from django.http import QueryDict

from jobs.conf import conf, registry
from jobs.routing import SYSTEM
from jobs.sightings import Filter, Place
from jobs.states import State

MOMENTS = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"]
_NO_MOMENT = {"invalid": "This is no date and time, like 2026-11-29T14:30."}
# What says where in the list one is, and no filter.
PLACES = ("before", "after", "select")
# What the page folds away: what is set is said by the chips, what is wrong is unfolded.
FOLDED = ("type", "queue", "group", "workspace", "tenant", "reason", "since", "until", "system")


class Chip(NamedTuple):
    """A filter that is set, and the query of the list without it."""

    label: str
    value: str
    without: str
    name: str = ""


class Filters(forms.Form):
    """What the list may be narrowed to. Moments are UTC."""

    q = forms.CharField(max_length=600, required=False, label="Search")
    state = forms.MultipleChoiceField(choices=[(s.value, s.value) for s in State], required=False,
                                      error_messages={"invalid_choice": "There is no state %(value)s."})
    type = forms.RegexField(r"^[^@\s]{1,64}(@[0-9]{1,9})?\Z", required=False, max_length=80,
                            error_messages={"invalid": "This is a type, or type@version."})
    queue = forms.CharField(max_length=64, required=False)
    group = forms.CharField(max_length=64, required=False, label="Worker group")
    workspace = forms.CharField(max_length=64, required=False)
    tenant = forms.CharField(max_length=255, required=False)
    reason = forms.CharField(max_length=512, required=False)
    since = forms.DateTimeField(input_formats=MOMENTS, required=False, label="Created from", error_messages=_NO_MOMENT)
    until = forms.DateTimeField(input_formats=MOMENTS, required=False, label="Created before",
                                error_messages=_NO_MOMENT)
    system = forms.BooleanField(required=False, label="System jobs")
    before = forms.UUIDField(required=False)
    after = forms.UUIDField(required=False)

    def narrowed(self) -> Filter:
        """The filter of a valid form."""
        said: dict[str, Any] = self.cleaned_data
        return Filter(tuple(said["state"]), said["type"], said["queue"], said["group"], said["workspace"],
                      said["tenant"], said["reason"], _utc(said["since"]), _utc(said["until"]), said["q"],
                      said["system"])

    def place(self) -> Place:
        """Where in the list; older wins over newer."""
        before: UUID | None = self.cleaned_data["before"]
        return Place(before, None if before else self.cleaned_data["after"])

    def faults(self) -> list[str]:
        """What is wrong with what the URL says."""
        return [f"{self.fields[name].label or name.capitalize()}: {fault}"
                for name, found in self.errors.items() for fault in found]

    def chips(self, query: QueryDict) -> list[Chip]:
        """One for each value that narrows the list."""
        return [Chip(str(self.fields[name].label or name.capitalize()), value, without(query, name, value), name)
                for name in self.fields if name not in PLACES for value in _values(query, name) if value.strip()]


def _values(query: QueryDict, name: str) -> list[str]:
    """What counts of what a URL says: of a field with one value the last. Each chip costs the length of the query."""
    said = query.getlist(name)
    return list(dict.fromkeys(said))[: len(State)] if name == "state" else said[-1:]


def _utc(moment: datetime | None) -> datetime | None:
    """As the form says, whatever time zone the site has."""
    return None if moment is None else moment.replace(tzinfo=UTC)


def without(query: QueryDict, *names: str) -> str:
    """The query without its place and without one value (`name`, `value`) of a filter; encoded."""
    left = QueryDict(mutable=True)
    for name in query:
        if name in Filters.base_fields and name not in PLACES:
            # What is no filter leads nowhere, and what does not count is not carried on.
            left.setlist(name, [v for v in _values(query, name) if v.strip() and names != (name, v)])
    return left.urlencode()


def known() -> dict[str, list[str]]:
    """What this site knows of: suggestions for the form."""
    return {"queues": list(conf().QUEUES), "types": registry().names(),
            "groups": sorted({*registry().groups(), *registry().groups(external=True), SYSTEM})}
