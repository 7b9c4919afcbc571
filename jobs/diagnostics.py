"""What an attempt may say for the log alone: a few bounded numbers and words, never free text (B32)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from jobs.codecs import MAX_INTEGER, printable
from jobs.errors import Invalid
from jobs.redaction import is_secret

MAX_FIELDS: Final = 16
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Lower case and short, so that neither a prompt nor a credential passes for one.
_TOKEN: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
Snapshot = dict[str, bool | int | str]


def snapshot(fields: Mapping[str, object], *, beneath: str = "") -> Snapshot:
    """The fields of one diagnostic: truth values, whole numbers from 0 on, lowercase tokens of at most 32 characters.

    Raises Invalid invalid_diagnostic with every fault; `beneath` is where the fields stand.
    """
    faults = [{"field": beneath + printable(str(name), 64), "message": fault} for name, value in fields.items()
              if (fault := _fault(name, value))]
    if len(fields) > MAX_FIELDS:
        faults = [{"field": beneath.rstrip("."), "message": f"at most {MAX_FIELDS} fields at once, not {len(fields)}"}]
    if faults:
        said = "; ".join(f"{fault['field']}: {fault['message']}".removeprefix(": ") for fault in faults[:MAX_FIELDS])
        raise Invalid(f"This is no diagnostic: {said}", field=faults[0]["field"], code="invalid_diagnostic",
                      faults=faults[:MAX_FIELDS])
    return dict(fields)  # type: ignore[arg-type]


def _fault(name: object, value: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name is snake_case, at most 64 characters"
    if is_secret(name):
        return "sounds like a secret, which no log shows; say it by another name"
    fine = type(value) is bool or (type(value) is int and 0 <= value <= MAX_INTEGER) \
        or (type(value) is str and _TOKEN.fullmatch(value) is not None)
    return "" if fine else "must be true, false, a whole number from 0 on, or at most 32 of a-z 0-9 . _ - from a-z on"
