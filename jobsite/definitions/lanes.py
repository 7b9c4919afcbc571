"""`lane-watchdog@1`, from the package of lanes (A49)."""

from __future__ import annotations

from lanes.definitions import DEFINITIONS

__all__ = ["DEFINITIONS"]
