"""What a tool is: a name, a schema, the permission that it needs, and a function: parse, call one service, shape.

Arguments are read as strictly as a body of the API: the limits of its JSON, no field that means nothing, every refusal
with its code and field. The docstring of a tool's function is what models read of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rest_framework.exceptions import PermissionDenied

from jobs import codecs
from jobs.api import fields, parsing
from jobs.api.describing import Fields, Schema
from jobs.api.security import Principal
from jobs.errors import Invalid
from jobs.services import tenancy
from jobs.services.keys import Permission
from lanes.mcp.calls import Call

Body = dict[str, Any]
Run = Callable[[Principal, Body], Any]


@dataclass(frozen=True)
class Tool:
    """One tool. `reads`: it changes nothing; `repeats`: said again it changes nothing more; `ends`: for good."""

    name: str
    title: str
    means: str
    permission: Permission
    fields: Fields
    needed: Sequence[str]
    reads: bool
    repeats: bool
    ends: bool
    run: Run

    @property
    def schema(self) -> Schema:
        """The JSON schema of its arguments."""
        return {"type": "object", "properties": dict(self.fields), "required": list(self.needed),
                "additionalProperties": False}


TOOLS: Final[dict[str, Tool]] = {}


def tool(title: str, permission: Permission, said: Fields, *needed: str, reads: bool = False, repeats: bool = False,
         ends: bool = False) -> Callable[[Run], Run]:
    """Makes a tool of a function, under its name."""

    def mark(run: Run) -> Run:
        TOOLS[run.__name__] = Tool(run.__name__, title, inspect.getdoc(run) or "", permission, said, needed, reads,
                                   repeats or reads, ends, run)
        return run

    return mark


def perform(one: Tool, call: Call, arguments: Body | None) -> Any:
    """What the tool answers. Raises the refusals of the API."""
    who = Principal(call.admit())
    if not who.may(one.permission):
        raise lacking(one.permission)
    if one.permission == Permission.ENQUEUE:
        who.check_enqueues()
    return one.run(who, _strictly(one, arguments))


def lacking(permission: Permission) -> PermissionDenied:
    """What a key is told that was not given this permission."""
    return PermissionDenied(f"This key lacks the permission {str(permission)!r}.")


def _strictly(one: Tool, arguments: Body | None) -> Body:
    body = codecs.parse(_text(arguments or {}), max_bytes=parsing.limit())
    parsing.refuse_unknown(body, one.fields)
    for name in one.needed:
        if name not in body:
            raise Invalid("is missing", field=name, code="missing_field")
    return body  # type: ignore[no-any-return]


def _text(arguments: Body) -> str:
    """The arguments as they were sent, or nearly: the protocol's own reader takes what we do not."""
    try:
        return json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise codecs.refusal("too_deep", f"This is nested more than {codecs.MAX_DEPTH} levels deep.") from None
    except ValueError:
        raise codecs.refusal("integer_too_large", "Integers must be between -(2^53-1) and 2^53-1.") from None


def tenant_of(body: Body) -> str | None:
    """The tenant that the arguments name, if they name one. Raises Invalid."""
    said = fields.named(body, "tenant_subject")
    if said is not None:
        tenancy.check_subject(said)
    return said
