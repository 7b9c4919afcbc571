"""The three flags of `research`: what may be asked for and what runs. Read when the site starts (B43)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings


@dataclass(frozen=True, slots=True)
class Switches:
    """What is on. `AGENT` and `BACKGROUND_JOBS` stop everything of the family, `WEB_RESEARCH` what goes public.

    What is off takes no new requests and starts none that wait; its rows and results stay.
    """

    AGENT: bool = True
    BACKGROUND_JOBS: bool = True
    WEB_RESEARCH: bool = True

    @property
    def private(self) -> bool:
        """Whether descriptions, answers and briefs run, none of which see the web."""
        return self.AGENT and self.BACKGROUND_JOBS

    @property
    def public(self) -> bool:
        """Whether evidence is looked for on the web."""
        return self.private and self.WEB_RESEARCH


def said() -> dict[str, Any]:
    """The site's setting `RESEARCH`; a project of its own may have none."""
    return dict(getattr(settings, "RESEARCH", {}))


def switches() -> Switches:
    """The flags of this site."""
    return Switches(**{name: value for name, value in said().items() if name in Switches.__dataclass_fields__})
