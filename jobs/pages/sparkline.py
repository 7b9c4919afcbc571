"""Small drawings of an hour, a bar a minute, for people who see them and for people who hear them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HEIGHT, STEP, BAR = 28, 2.5, 1.75


class Sparkline(NamedTuple):
    """Bars as paths, and what they say. `bad` is the part that failed, drawn over the foot of all."""

    all: str
    bad: str
    width: float
    height: int
    said: str


def sparkline(settled: Sequence[int], erred: Sequence[int]) -> Sparkline:
    """The minutes of an hour, the present one last; bars share the scale of the highest."""
    most = max([*settled, 1])
    return Sparkline(_bars(settled, most), _bars(erred, most), STEP * len(settled), HEIGHT, _said(settled, erred))


def _bars(values: Sequence[int], most: int) -> str:
    """One path for all bars; what is there at all is seen."""
    tall = [max(1.5, HEIGHT * min(1.0, value / most)) if value else 0.0 for value in values]
    return "".join(f"M{n * STEP:g} {HEIGHT}v-{high:.1f}h{BAR}v{high:.1f}z" for n, high in enumerate(tall) if high)


def _said(settled: Sequence[int], erred: Sequence[int]) -> str:
    total = sum(settled)
    if not total:
        return "Nothing settled in the last hour."
    failed = f", {sum(erred):,} of them failed attempts" if sum(erred) else ""
    return (f"{total:,} settled in the last hour{failed}; {settled[-2]:,} in the last full minute,"
            f" most {max(settled):,}.")
