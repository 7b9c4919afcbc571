"""The definitions that a site knows: collected from its modules, found by type and version (B1, B7, B11).

Registration is explicit and schedules nothing. The registry of the running site is `jobs.conf`'s.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType

from jobs.codecs import printable
from jobs.declaration import JobFunction, define, external, job
from jobs.definition import ORIGINS, SITE, Definition, Ended, Executor, Site, Span, Spans, nearest
from jobs.errors import Invalid

# The names by which definitions were always imported from here.
__all__ = [
    "ORIGINS", "SITE", "Definition", "Ended", "Executor", "JobFunction", "Registry", "Site", "Span", "Spans",
    "collect", "define", "external", "job", "load", "nearest",
]

class Registry:
    """The definitions of a site by type and version. The highest version serves new work (B7)."""

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        self._exact: dict[tuple[str, int], Definition] = {}
        self._current: dict[str, Definition] = {}
        # The types whose ends somebody wants to be told of.
        self.told: frozenset[str] = frozenset()
        for definition in definitions:
            self.add(definition)

    def __iter__(self) -> Iterator[Definition]:
        """By type, then version."""
        return iter([self._exact[key] for key in sorted(self._exact)])

    def __len__(self) -> int:
        return len(self._exact)

    def add(self, definition: Definition) -> None:
        """Register one; the same object again changes nothing. Raises Invalid duplicate_definition (B6)."""
        key = (definition.type, definition.version)
        if self._exact.setdefault(key, definition) is not definition:
            raise Invalid(f"{definition.name} is defined twice.", field="type", code="duplicate_definition")
        if definition.on_ended is not None:
            self.told |= {definition.type}
        newest = self._current.get(definition.type, definition)
        self._current[definition.type] = definition if definition.version > newest.version else newest

    def find(self, type_: str, version: int) -> Definition | None:
        """The definition that a row names, if this process knows it."""
        return self._exact.get((type_, version))

    def current(self, type_: str) -> Definition:
        """The definition of new work. Raises Invalid unknown_job_type, naming the nearest (B12)."""
        found = self._current.get(type_) if isinstance(type_, str) else None
        if found is None:
            message = f"There is no job type {printable(str(type_), 64)!r}{nearest(type_, self._current)}"
            raise Invalid(message, field="type", code="unknown_job_type")
        return found

    def exact(self, type_: str, version: int) -> Definition:
        """One version of a type. Raises Invalid unknown_job_type or unregistered_version (B7, B12)."""
        newest = self.current(type_)
        found = self._exact.get((type_, version)) if type(version) is int else None
        if found is None:
            message = f"There is no such version of {type_}; the current one is {newest.version}."
            raise Invalid(message, field="version", code="unregistered_version")
        return found

    def names(self) -> list[str]:
        """Every `type@version`, sorted: what a worker says that it can run."""
        return [definition.name for definition in self]

    def groups(self, *, external: bool = False) -> list[str]:
        """The worker groups that have an in-process handler, or those that have an external definition (E7)."""
        return sorted({d.worker_group for d in self if (d.handler is None) == external})

    def check(self, queues: Collection[str]) -> list[str]:
        """A sentence for each definition in no queue of the site, and each group served in two ways (E7)."""
        lost = [f"{d.name} declares the unknown queue {d.queue!r}{nearest(d.queue, queues)}"
                for d in self if d.queue not in queues]
        both = sorted(set(self.groups()) & set(self.groups(external=True)))
        return lost + [f"worker group {group!r} has in-process and external definitions" for group in both]


def _definition(thing: object) -> Definition | None:
    thing = thing.definition if isinstance(thing, JobFunction) else thing
    return thing if isinstance(thing, Definition) else None


def collect(module: ModuleType) -> list[Definition]:
    """The definitions of a module: what its `DEFINITIONS` lists, else all that it names.

    `DEFINITIONS` of a package may also hold names of its submodules. Raises Invalid for anything else in it.
    """
    listed = getattr(module, "DEFINITIONS", None)
    if listed is None:
        return [found for thing in vars(module).values() if (found := _definition(thing))]
    found_all: list[Definition] = []
    for thing in listed:
        if isinstance(thing, str):
            found_all += collect(importlib.import_module(f"{module.__name__}.{thing}"))
        elif (found := _definition(thing)) is not None:
            found_all.append(found)
        else:
            raise Invalid(f"{module.__name__}.DEFINITIONS holds {thing!r}.", field="DEFINITIONS", code="no_definition")
    return found_all


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        # It would end a worker without a word, and a web process with it.
        raise ImportError(f"{name} asked to exit ({error.code!r}) while it was imported.") from error


def load(names: Iterable[str]) -> Registry:
    """The registry of the named modules (B11). Raises ImportError, and Invalid no_definition if one has none."""
    registry = Registry()
    for name in names:
        found = collect(_imported(name))
        if not found:
            raise Invalid(f"{name} defines no job.", field=name, code="no_definition")
        for definition in found:
            registry.add(definition)
    return registry
