"""Reading requests: bodies of strict JSON within the limit, the query's words, preconditions.

Every refusal names the field. Typed fields are `fields`'; what they may say about a job is the services' business.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from jobs import codecs
from jobs.api.errors import UnsupportedMedia
from jobs.errors import Invalid, JobsError
from jobs.registry import nearest

_WHOLE = re.compile(r"[0-9]{1,9}")
MAX_FAULTS = 50
_REVISION = re.compile(r'"([a-z])([0-9]{1,9})"')


class StrictJSONParser(BaseParser):
    """The one parser: application/json in UTF-8, counted before it is parsed, as strict as `codecs.parse`."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """The value of a body. Raises Invalid: too_large, unsupported_media_type, and what `codecs.parse` raises."""
        raw = self.read(stream, limit())
        self.check_type(media_type or "")
        return codecs.parse(raw, max_bytes=limit())

    @staticmethod
    def read(stream: Any, most: int) -> bytes:
        """The body, if it is within the limit; never more of it than one byte too many. Raises Invalid too_large."""
        raw: bytes = stream.read(most + 1)
        if len(raw) > most:
            raise codecs.too_large(most)
        return raw

    @staticmethod
    def check_type(media_type: str) -> None:
        """Raises UnsupportedMedia for anything but application/json in UTF-8."""
        said = Message()
        said["Content-Type"] = codecs.printable(media_type)
        charset = said.get_param("charset", "utf-8")
        if said.get_content_type() != "application/json" or str(charset).lower() not in ("utf-8", "utf8"):
            raise UnsupportedMedia(field="Content-Type")


def limit() -> int:
    """The largest body in bytes."""
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE or codecs.MAX_BYTES


def body(request: Request, known: Collection[str], *, optional: bool = False, most: int | None = None,
         keys: int = codecs.MAX_KEYS) -> dict[str, Any]:
    """The object that a request carries, with `known` fields only; where it is `optional`, no body is `{}`.

    At most so many bytes and keys in all.
    """
    value = free_body(request, optional=optional, most=most, keys=keys)
    refuse_unknown(value, known)
    return value


def free_body(request: Request, *, optional: bool = False, most: int | None = None,
              keys: int = codecs.MAX_KEYS) -> dict[str, Any]:
    """The object that a request carries, whatever its fields.

    Read from the request itself: the framework takes a body without Content-Length for none.
    """
    plain: HttpRequest = request._request
    most = most or limit()
    length = plain.META.get("CONTENT_LENGTH") or "0"
    if _WHOLE.fullmatch(length) is None or int(length) > most:
        raise codecs.too_large(most)
    raw = StrictJSONParser.read(plain, most)
    if not raw and optional:
        return {}
    if raw:
        StrictJSONParser.check_type(plain.META.get("CONTENT_TYPE", ""))
    if plain.META.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        raise UnsupportedMedia("Bodies are read as they are, without an encoding.", field="Content-Encoding")
    value = codecs.parse(raw, max_bytes=most, max_keys=keys)
    if not isinstance(value, dict):
        raise Invalid("The body must be an object.", field="", code="not_an_object")
    return value


def refuse_unknown(value: Collection[str], known: Collection[str], *, beneath: str = "", noun: str = "field") -> None:
    """Raises Invalid unknown_field (or unknown_parameter) naming every name that means nothing here."""
    strange = sorted(name for name in value if name not in known)
    if strange:
        faults = [{"field": beneath + codecs.printable(name),
                   "message": f"is no {noun} here{nearest(name[:64], known)}"} for name in strange[:MAX_FAULTS]]
        first = faults[0]
        raise Invalid(f"{first['field']!r} {first['message']}", field=first["field"], code=f"unknown_{noun}",
                      faults=faults)


def query(request: Request, *known: str) -> dict[str, str]:
    """The query's words, each said once. Raises Invalid unknown_parameter, repeated_parameter."""
    said = request._request.GET
    # A key has its workspace; a person says in which one it acts.
    places = ("tenant_subject", "workspace") if request.auth is None else ("tenant_subject",)
    refuse_unknown(said.keys(), (*known, *places), noun="parameter")
    for name in said:
        if len(said.getlist(name)) > 1:
            raise Invalid("is said more than once", field=name, code="repeated_parameter")
    return {name: str(said[name]) for name in said}


def if_match(request: Request, mark: str = "r") -> int | None:
    """The revision that an If-Match header demands; None for none or `*`. Raises Invalid invalid_if_match.

    `mark`: the letter in front of the number, by which ETags of one kind of thing are told from another's.
    """
    said = request._request.META.get("HTTP_IF_MATCH", "*").strip()
    if said == "*":
        return None
    found = _REVISION.fullmatch(said)
    if found is None or found[1] != mark:
        raise Invalid(f'must be one ETag like "{mark}3"', field="If-Match", code="invalid_if_match")
    return int(found[2])


@contextmanager
def beneath(name: str) -> Iterator[None]:
    """Refusals that point into a value point into the body's field that carried it; "" is the body itself."""
    root = f"/{name}" if name else ""
    try:
        yield
    except Invalid as error:
        if error.field is not None and (not error.field or error.field.startswith("/")):
            error.field = f"{root}{error.field}"
            error.faults = [{**fault, "field": f"{root}{fault['field']}"} for fault in error.faults]
        raise


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Refusals name fields as the caller spelled them, where that is not how we do."""
    try:
        yield
    except JobsError as error:
        if error.field is not None and error.field in names:
            error.field = names[error.field]
            if isinstance(error, Invalid):
                error.faults = [{**fault, "field": names.get(fault["field"], fault["field"])} for fault in error.faults]
        raise
