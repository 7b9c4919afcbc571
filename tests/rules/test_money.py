"""Amounts of US dollars as callers send them and as answers show them (C12)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import Invalid
from jobs.money import amount, shown


@pytest.mark.parametrize(("said", "kept", "told"), [
    ("1.25", "1.25", "1.25"), (0.1 + 0.2, "0.3", "0.30"), (3, "3", "3.00"), ("0", "0", "0.00"), (0.0, "0", "0.00"),
    ("0.000000001", "0.000000001", "0.000000001"), (Decimal("7.5"), "7.5", "7.50"), (1e-12, "0", "0.00"),
    ("0.1000000000000", "0.1", "0.10"), (99_999_999_999, "99999999999", "99999999999.00"),
])
def test_an_amount_is_exact_to_the_billionth(said: Any, kept: str, told: str) -> None:
    """C12: numbers are rounded, texts say what they mean."""
    found = amount(said, "max_cost_usd", "invalid_max_cost_usd")
    assert found == Decimal(kept)
    assert shown(found) == told


@pytest.mark.parametrize("said", [
    -1, "-1", "-0.01", float("nan"), float("inf"), "NaN", "Infinity", "1e3", "1_000", " 1", "1 ", "", ".5", "1.", "$1",
    "\u0661", True, [], {}, 10**11, 10**4000, 1e300,
    "0.0000000001", "1" * 200, Decimal("1e-10"), Decimal("sNaN"), "1,5",
])
def test_what_is_no_amount_is_refused_by_name(said: Any) -> None:
    """C12: never an error of arithmetic."""
    with pytest.raises(Invalid) as caught:
        amount(said, "max_cost_usd", "invalid_max_cost_usd")
    assert (caught.value.reason_code, caught.value.field) == ("invalid_max_cost_usd", "max_cost_usd")


@given(st.decimals(0, 10**10, places=9))
def test_what_is_shown_is_read_again_as_the_same(said: Decimal) -> None:
    """C12."""
    assert amount(shown(said), "x", "invalid_x") == said
