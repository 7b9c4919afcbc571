"""Canonical JSON (RFC 8785), the strict reading of request bodies, and the hashes of both.

Answers: is this plain JSON within our bounds, and what is its one text? What `canonical` writes, `parse` reads
back. Plain Python; typed codecs are `jobs.schemas`, HTTP numbers are the API's business (B8, B9, E6).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import isfinite
from typing import Any, Final

from jobs.errors import Invalid

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 1_048_576
MAX_PAYLOAD_BYTES: Final = 16 * MAX_BYTES
MAX_KEYS: Final = 10_000
MAX_CONTAINERS: Final = 50_000
MAX_INTEGER: Final = 2**53 - 1
MAX_NUMBER_TEXT: Final = 64

# The C form escapes exactly what RFC 8785 asks for: quote, backslash and C0 controls, the short forms where they exist.
_quote: Callable[[str], str] = json.encoder.encode_basestring
_integer: Callable[[int], str] = int.__repr__
_NUMBERS: Final = frozenset({int, float})
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class _Unfit(Exception):
    """Something in the value is not allowed; `_explain` walks again and says what and where."""


class _Repeated(Exception):
    """An object names a key twice; `_repeated` reads again and says which."""


def printable(text: str, length: int = 300) -> str:
    """The text without control characters and lone surrogates, cut at `length`: fit for answers, rows and logs."""
    return _UNPRINTABLE.sub("?", text[:length])


def pointer(path: tuple[object, ...]) -> str:
    """The JSON pointer (RFC 6901) of a path, made printable."""
    return printable("".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path))


def refusal(code: str, message: str, path: tuple[object, ...] = ()) -> Invalid:
    """An `Invalid` about one place; the empty pointer means the whole value."""
    where = pointer(path)
    return Invalid(message, field=where, code=code, faults=[{"field": where, "message": message}])


def too_large(max_bytes: int) -> Invalid:
    """The refusal `too_large`, with the limit."""
    error = refusal("too_large", f"This is longer than {max_bytes} bytes.")
    error.facts["max_bytes"] = max_bytes
    return error


# --- writing -----------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A finite float as ECMAScript writes it, which is what RFC 8785 prescribes: shortest digits that read back."""
    if not isfinite(value):
        raise refusal("invalid_number", "Numbers must be finite.")
    text = repr(value)
    if "e" not in text:
        plain = text.removesuffix(".0")
        return "0" if plain == "-0" else plain
    mantissa, _, exponent = text.partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    digits = mantissa.replace(".", "")
    point = int(exponent) + 1
    # Python turns to exponents at 1e16 and 1e-5, ECMAScript at 1e21 and 1e-7; at 1e16 no digit is behind the point.
    if 0 < point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    fraction = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _leaf(value: object) -> str:
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if type(value) is int and _fits(value):
        return _integer(value)
    if type(value) is float and _fits(value):
        return number(value)
    raise _Unfit


def _fits(value: float) -> bool:
    # A whole float from 2^53 to 1e21 would be written as an integer that `parse` must refuse.
    return -MAX_INTEGER <= value <= MAX_INTEGER or (type(value) is float and isfinite(value) and abs(value) >= 1e21)


def _write(value: Any, depth: int, limit: int, order: Callable[[str], bytes] | None) -> str:
    """The text of one value. Each container stops at `limit`, so that shared references cannot multiply."""
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is not dict and kind is not list:
        return _leaf(value)
    if not depth:
        raise _Unfit
    parts = []
    size = 0
    if kind is list:
        for item in value:
            piece = _quote(item) if type(item) is str else _write(item, depth - 1, limit, order)
            parts.append(piece)
            size += len(piece)
            if size > limit:
                raise too_large(limit)
        return "[" + ",".join(parts) + "]"
    for key in sorted(value, key=order):
        if type(key) is not str:
            raise _Unfit
        item = value[key]
        piece = _quote(key) + ":" + (_quote(item) if type(item) is str else _write(item, depth - 1, limit, order))
        parts.append(piece)
        size += len(piece)
        if size > limit:
            raise too_large(limit)
    return "{" + ",".join(parts) + "}"


def canonical(value: object, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> str:
    """The RFC 8785 text of a plain JSON value, at most `max_bytes` of UTF-8 and `max_depth` containers deep (B8, B9).

    Raises Invalid, with the pointer as `field`: invalid_number, integer_too_large (beyond 2^53-1, as a float too),
    invalid_text (NUL, lone surrogates), too_deep (cycles as well), not_json (anything but exactly dict with string
    keys, list, str, int, float, bool and None), too_large.
    """
    try:
        text = _write(value, max_depth, max_bytes, None)
        if text.isascii():
            size = len(text)
        else:
            size = len(text.encode())
            # RFC 8785 orders keys by UTF-16 units; only characters beyond U+FFFF make that differ from Python's order.
            if _ASTRAL.search(text):
                text = _write(value, max_depth, max_bytes, _utf16)
    except (_Unfit, TypeError, UnicodeEncodeError):
        _explain(value, (), max_depth)
        raise refusal("not_json", "This is not plain JSON.") from None
    if "\\u0000" in text:
        _explain(value, (), max_depth)
    if size > max_bytes:
        raise too_large(max_bytes)
    return text


def _explain(value: Any, path: tuple[object, ...], depth: int) -> None:
    """Raise the refusal of the first thing that is wrong, in the order in which `_write` visits."""
    kind = type(value)
    if kind is str:
        _explain_text(value, path)
    elif kind in _NUMBERS:
        _explain_number(value, path)
    elif kind is dict or kind is list:
        if not depth:
            raise refusal("too_deep", "This is nested too deeply.", path)
        for step, item in _steps(value, path) if kind is dict else enumerate(value):
            # Most of a hostile list is numbers without a fault: no call and no path for them. NaN fails comparisons.
            if type(item) not in _NUMBERS or not (-MAX_INTEGER <= item <= MAX_INTEGER or _fits(item)):
                _explain(item, (*path, step), depth - 1)
    elif value is not None and kind is not bool:
        raise refusal("not_json", f"A {kind.__name__} is not plain JSON.", path)


def _explain_text(text: str, path: tuple[object, ...]) -> None:
    if "\0" in text:
        raise refusal("invalid_text", "Text must not contain the NUL character.", path)
    if not text.isascii() and _SURROGATE.search(text):
        raise refusal("invalid_text", "Text must not contain lone surrogates.", path)


def _explain_number(value: float, path: tuple[object, ...]) -> None:
    if type(value) is float and not isfinite(value):
        raise refusal("invalid_number", "Numbers must be finite.", path)
    if not _fits(value):
        raise refusal("integer_too_large", "Integers beyond 2^53-1 lose digits in JSON; use a string.", path)


def _steps(value: dict[Any, Any], path: tuple[object, ...]) -> Iterator[tuple[str, Any]]:
    if any(type(key) is not str for key in value):
        raise refusal("not_json", "Keys must be strings.", path)
    for key in sorted(value):
        _explain_text(key, (*path, key))
        yield key, value[key]


# --- reading -----------------------------------------------------------------------------------------------------

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}:"'))
_STEP: Final = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
# Every digit becomes 0 and E becomes e, so that runs of digits and exponents are plain searches.
_SHAPE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG: Final = b"0" * 16
_HUGE: Final = b"0" * MAX_NUMBER_TEXT


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Repeated
    return found


def _short_int(text: str) -> int:
    if len(text) > MAX_NUMBER_TEXT:
        raise refusal("integer_too_large", "Integers beyond 2^53-1 lose digits in JSON; use a string.")
    return int(text)


def _short_float(text: str) -> float:
    if len(text) > MAX_NUMBER_TEXT:
        raise refusal("invalid_number", f"Numbers must not be longer than {MAX_NUMBER_TEXT} characters.")
    return float(text)


_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class _Pairs(list[Any]):
    """An object as the reader met it, with repeated keys."""


_READER: Final = json.JSONDecoder(object_pairs_hook=_pairs)
_WARY_READER: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_short_int, parse_float=_short_float)


def _outside_strings(raw: bytes) -> bytes:
    """The brackets and colons that are no part of a string, without parsing; an unclosed string drops the rest."""
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    return b"".join(bare.replace(b'""', b"").split(b'"')[::2])


def _check_shape(raw: bytes, max_depth: int, max_keys: int) -> None:
    """Refuse too many containers, in each other or in all, and too many keys before anything is built from them."""
    if raw.count(b"[") + raw.count(b"{") <= max_depth and raw.count(b":") <= max_keys:
        return
    structure = _outside_strings(raw)
    if structure.count(b":") > max_keys:
        raise refusal("too_many_keys", f"There are more than {max_keys} keys in all.")
    if structure.count(b"[") + structure.count(b"{") > MAX_CONTAINERS:
        raise refusal("too_many_containers", f"There are more than {MAX_CONTAINERS} objects and lists in all.")
    if max(accumulate(map(_STEP.__getitem__, structure)), default=0) > max_depth:
        raise refusal("too_deep", f"This is nested more than {max_depth} levels deep.")


def _is_suspicious(raw: bytes) -> bool:
    """Whether the text may hold what the reader takes and we do not; false alarms cost a walk over the value."""
    shape = raw.translate(_SHAPE)
    return (
        _LONG in shape or b"0e0" in shape or b"0e+0" in shape or b"NaN" in raw or b"Infinity" in raw
        or (b"\\u" in raw and _ESCAPE.search(raw) is not None)
    )


def _read(text: str, wary: bool) -> Any:
    try:
        return (_WARY_READER if wary else _READER).decode(text)
    except _Repeated:
        raise _repeated(text) from None
    except json.JSONDecodeError as error:
        raise refusal("malformed_json", f"This is not JSON: {error.msg} at character {error.pos}.") from None


def _repeated(text: str) -> Invalid:
    """The refusal that points at the first key that an object names twice."""
    nested = json.loads(text, object_pairs_hook=_Pairs)
    return refusal("duplicate_key", "An object names this key twice.", _first_repeat(nested, ()) or ())


def _first_repeat(value: Any, path: tuple[object, ...]) -> tuple[object, ...] | None:
    seen = set()
    for step, item in value if isinstance(value, _Pairs) else enumerate(value):
        here = (*path, step)
        if isinstance(value, _Pairs) and step in seen:
            return here
        seen.add(step)
        if isinstance(item, list) and (found := _first_repeat(item, here)):
            return found
    return None


def _utf8(raw: bytes | str, max_bytes: int) -> tuple[bytes, str]:
    if len(raw) > max_bytes:
        raise too_large(max_bytes)
    try:
        octets, text = (raw.encode(), raw) if isinstance(raw, str) else (raw, raw.decode())
    except UnicodeEncodeError:
        raise refusal("invalid_text", "Text must not contain lone surrogates.") from None
    except UnicodeDecodeError:
        raise refusal("invalid_encoding", "This is not UTF-8.") from None
    if octets.startswith(b"\xef\xbb\xbf"):
        raise refusal("invalid_encoding", "JSON must not start with a byte order mark.")
    if len(octets) > max_bytes:
        raise too_large(max_bytes)
    return octets, text


def parse(raw: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, max_keys: int = MAX_KEYS) -> Any:
    """The value of a JSON text from outside, read so strictly that `canonical` will take it (B8).

    Raises Invalid, with the pointer as `field` where there is one: too_large, invalid_encoding (not UTF-8, or a byte
    order mark), too_many_keys, too_many_containers, too_deep, malformed_json (empty and trailing text too),
    duplicate_key, invalid_number (NaN, 1e400), integer_too_large, invalid_text (NUL, lone surrogates).
    """
    octets, text = _utf8(raw, max_bytes)
    _check_shape(octets, max_depth, max_keys)
    if not _is_suspicious(octets):
        return _read(text, wary=False)
    # Python's own bound on the digits of an integer is a ValueError, and a site may have switched it off.
    value = _read(text, wary=_HUGE in octets.translate(_SHAPE))
    _explain(value, (), max_depth)
    return value


# --- hashes ------------------------------------------------------------------------------------------------------


def stored(text: str | None) -> Any:
    """The value of a text that a row of ours keeps; None where there is none.

    And where a hand has spoilt it: a poisoned row stops nobody who reads it, and `manage.py verify` tells it.
    """
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def digest(text: str) -> bytes:
    """The SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).digest()


def fingerprint(request: dict[str, Any], *, max_bytes: int = 2 * MAX_PAYLOAD_BYTES) -> bytes:
    """The SHA-256 of a request's canonical form: equal for equal requests, however they were written (E6).

    Raises Invalid as `canonical` does; a few levels deeper, because the request surrounds a value of full depth.
    """
    return digest(canonical(request, max_bytes=max_bytes, max_depth=MAX_DEPTH + 8))
