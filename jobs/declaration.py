"""Declaring jobs: `@job` on a function, `external` for those that HTTP runners execute (B5, B6, DESIGN 6)."""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, Generic, ParamSpec, TypeVar

from jobs.definition import Definition, invalid, nearest
from jobs.errors import Invalid
from jobs.schemas import Codec, Opaque, codec, plain, unfit
from jobs.signatures import artifact_codec, input_codec

P = ParamSpec("P")
R = TypeVar("R")

_KEYWORDS: Final = tuple(f.name for f in fields(Definition) if f.init and f.name not in ("type", "handler"))


def define(type_: str, handler: Callable[..., Any] | None, options: Mapping[str, Any]) -> Definition:
    """A definition from keywords: codecs from the handler's signature where none is given, every fault at once (B6)."""
    faults = [{"field": word, "message": f"is no field of a definition{nearest(word, _KEYWORDS)}"}
              for word in options if word not in _KEYWORDS]
    given = {word: value for word, value in options.items() if word in _KEYWORDS}
    unread = set()
    for noun, read in (("input", input_codec), ("artifact", artifact_codec)):
        try:
            given[noun] = codec(given[noun]) if noun in given else read(handler) if handler else _unstated()
        except Invalid as error:
            unread.add(noun)
            given[noun] = Opaque()
            faults += [{**fault, "field": _within(noun, fault["field"])} for fault in error.faults]
    try:
        definition = Definition(type_, handler, **given)
    except Invalid as error:
        faults += [fault for fault in error.faults if fault["field"] not in unread]
    if faults:
        raise invalid(f"The definition {type_!r} is not valid", faults)
    return definition


def _unstated() -> Codec[Any]:
    raise unfit([{"field": "", "message": "must be stated for an external job"}])


def _within(noun: str, place: str) -> str:
    return f"{noun}.{place}" if place and not place.startswith("/") else noun + place


def external(type_: str, /, **options: Any) -> Definition:
    """A definition whose jobs HTTP runners execute; `input` and `artifact` must be given (E9). Raises Invalid."""
    return define(type_, None, options)


def job(type_: str, /, **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
    """Declare a function to be the handler of a job; keywords are the fields of Definition (DESIGN 6).

    The function's annotations are the codecs, unless `input=` or `artifact=` name a type or a Codec. A handler with
    `input=` is called `handler(run, input)`, else `handler(run, **fields)`. Raises Invalid invalid_definition.
    """
    if not isinstance(type_, str):
        raise invalid("A job needs a type", [{"field": "type", "message": 'write @job("the-type")'}])
    return lambda function: JobFunction(function, define(type_, function, options))


class JobFunction(Generic[P, R]):
    """A declared handler: calling it calls the function; `definition` is what is registered."""

    def __init__(self, function: Callable[P, R], definition: Definition) -> None:
        self.definition = definition
        self._function = function
        self._options: dict[str, Any] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job {self.definition.name}>"

    def using(self, **options: Any) -> JobFunction[P, R]:
        """The same job with options of enqueue: `report.using(priority=5, tenant="acme").enqueue(month=3)`."""
        bound = copy.copy(self)
        bound._options = {**self._options, **options}
        return bound

    def enqueue(self, value: Any = None, /, **fields: Any) -> Any:
        """Enqueue by fields or by one input value; what `jobs.enqueue` answers and raises."""
        return self._door("enqueue")(self.definition.type, self._input(value, fields), **self._options)

    async def aenqueue(self, value: Any = None, /, **fields: Any) -> Any:
        """`enqueue` for async callers."""
        return await self._door("aenqueue")(self.definition.type, self._input(value, fields), **self._options)

    def _input(self, value: Any, fields: dict[str, Any]) -> Any:
        if value is not None and fields:
            raise Invalid("Give one input or fields, not both.", field="input", code="invalid_input")
        return plain(fields if value is None else value)

    @staticmethod
    def _door(verb: str) -> Callable[..., Any]:
        # By name: the verbs live layers above, and the rules import no Django, not even through them.
        return getattr(importlib.import_module("jobs"), verb)  # type: ignore[no-any-return]
