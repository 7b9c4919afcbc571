"""Amounts of US dollars, exact to the billionth: read from what callers send, and written as people read them (C12)."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

from jobs.errors import Invalid

PLACES = 9
MOST = Decimal(10) ** 11
_STEP = Decimal(1).scaleb(-PLACES)
_TEXT = re.compile(r"[0-9]{1,11}(\.[0-9]{1,40})?")


def amount(value: Any, field: str, code: str) -> Decimal:
    """US dollars from a number or a decimal text, at least 0 and exact to the billionth. Raises Invalid.

    Numbers are rounded to the billionth, since 0.1 + 0.2 is one; a text says what it means.
    """
    try:
        said = _decimal(value)
        kept = said.quantize(_STEP, ROUND_HALF_EVEN)
        if kept != said and not isinstance(value, float):
            raise InvalidOperation
    except InvalidOperation:
        raise Invalid(f"must be US dollars from 0 to below {MOST}, as a number or a decimal text like \"1.25\" with at "
                      f"most {PLACES} decimals", field=field, code=code) from None
    return abs(kept)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, str) and not _TEXT.fullmatch(value):
        raise InvalidOperation
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise InvalidOperation
    # The text of a float is what its writer meant; the number itself is some binary fraction near it.
    said = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not said.is_finite() or not 0 <= said < MOST:
        raise InvalidOperation
    return said


def shown(value: Decimal | None) -> str | None:
    """An amount as answers and pages show it: a plain decimal text without idle zeros, at least two decimals."""
    if value is None:
        return None
    whole, _, part = f"{value:f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"


