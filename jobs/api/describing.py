"""What a method of a view says of itself: `@told(...)` above it. `openapi` makes the document of it.

The fields of a body and the words of a query are tables here and for the parser alike: what is not in the table is
refused as unknown, so neither can say what the other does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Schema = dict[str, Any]
Fields = Mapping[str, Schema]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Told:
    """What callers need to know of one method of one resource."""

    answers: Mapping[int, Schema]
    body: Fields | None
    needed: Sequence[str]
    bodiless: bool
    query: Fields
    headers: Sequence[str]
    refuses: Mapping[int, str]
    tenant: bool
    open_body: bool
    example: Any
    public: bool = field(default=False)


def told(answers: Mapping[int, Schema], *, body: Fields | None = None, needed: Sequence[str] = (),
         bodiless: bool = False, query: Fields | None = None, headers: Sequence[str] = (),
         refuses: Mapping[int, str] | None = None, tenant: bool = True, open_body: bool = False,
         example: Any = None, public: bool = False) -> Callable[[F], F]:
    """Describe a method of a View.

    `answers`: the schema of each good status. `body`: its fields, of which `needed` must be there; `bodiless`: no body
    is one without fields; `open_body`: other fields are taken too. `query`, `headers`: what else may be said.
    `refuses`: codes by status, with blanks between them, beside those that every such request may meet. `tenant`:
    whether it names a tenant. `example`: a body that would be taken. `public`: no key is asked for.
    """

    def mark(method: F) -> F:
        method.told = Told(answers, body, needed, bodiless, query or {}, headers, refuses or {},  # type: ignore[attr-defined]
                           tenant, open_body, example, public)
        return method

    return mark


# --- words of schemas ------------------------------------------------------------------------------------------------


def text(means: str = "", *, most: int | None = None, pattern: str | None = None,
         among: Sequence[str] | None = None) -> Schema:
    """A string."""
    said = {"description": means or None, "maxLength": most, "pattern": pattern,
            "enum": None if among is None else list(among)}
    return {"type": "string", **{name: value for name, value in said.items() if value is not None}}


def whole(least: int, most: int | None = None, means: str = "", *, default: int | None = None) -> Schema:
    """A whole number."""
    said = {"minimum": least, "maximum": most, "description": means or None, "default": default}
    return {"type": "integer", **{name: value for name, value in said.items() if value is not None}}


def number(means: str = "", *, least: float | None = None) -> Schema:
    """A number, mostly of seconds."""
    said = {"minimum": least, "description": means or None}
    return {"type": "number", **{name: value for name, value in said.items() if value is not None}}


def boolean(means: str = "", *, default: bool | None = None) -> Schema:
    """True or false."""
    said = {"description": means or None, "default": default}
    return {"type": "boolean", **{name: value for name, value in said.items() if value is not None}}


def moment(means: str = "") -> Schema:
    """A moment of RFC 3339 with its offset."""
    return {**text(means), "format": "date-time"}


def listed(of: Schema, means: str = "", *, most: int | None = None) -> Schema:
    """A list."""
    said = {"maxItems": most, "description": means or None}
    return {"type": "array", "items": of, **{name: value for name, value in said.items() if value is not None}}


def thing(fields: Fields, means: str = "", *, optional: Sequence[str] = ()) -> Schema:
    """An object with these members, all but the optional ones always there. Later versions may have more."""
    said = {"description": means} if means else {}
    return {"type": "object", "properties": dict(fields), "required": [f for f in fields if f not in optional], **said}


def mapping(means: str = "") -> Schema:
    """An object whose members are its owner's business."""
    return {"type": "object", "additionalProperties": True, **({"description": means} if means else {})}


def anything(means: str = "") -> Schema:
    """Any JSON."""
    return {"description": means} if means else {}


def or_null(schema: Schema) -> Schema:
    """The same, or null."""
    if "$ref" in schema or "anyOf" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    told = {**schema, "type": [*kinds, "null"]}
    return {**told, "enum": [*schema["enum"], None]} if "enum" in schema else told


def ref(name: str) -> Schema:
    """One of `forms.FORMS`."""
    return {"$ref": f"#/components/schemas/{name}"}
