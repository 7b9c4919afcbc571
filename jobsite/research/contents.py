"""What research is given and brings: exact fields, bounds, and sources whose provenance can be checked (B8, B44).

Public and private never meet: evidence is looked for with the brief alone, and no field of it can name a document.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from jobsite.documents.sources import is_relative

EVIDENCE: Final = "research-evidence"
ANSWER: Final = "research-answer"
BRIEF: Final = "research-brief"
MAX_BRIEF: Final = 8_000
MAX_DOCUMENT: Final = 1_048_576
MAX_SOURCES: Final = 50
_HOST: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])")
_PRIVATE: Final = (".local", ".localhost", ".internal", ".lan", ".home.arpa", ".test", ".invalid", ".onion")


def _public(url: str) -> str:
    """A canonical public HTTPS address: lowercase host with a name, no login, no port, no fragment."""
    if not url.isascii() or not url.isprintable() or any(c in url for c in ' "<>\\^`{|}'):
        raise ValueError("must be an address as it is written on the wire")
    parts = urlsplit(url)
    if parts.scheme != "https" or not url.startswith("https://"):
        raise ValueError("must begin with https://")
    if "@" in parts.netloc or ":" in parts.netloc or "#" in url:
        raise ValueError("must hold no login, no port and no fragment")
    if not _is_host(parts.netloc):
        raise ValueError("must name a public host, in lower case")
    if not parts.path.startswith("/"):
        raise ValueError("must have a path, / at least")
    return url


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= 253 and _HOST.fullmatch(host) is not None and not host.endswith(_PRIVATE)
    return False


def _document(path: str) -> str:
    if not is_relative(path):
        raise ValueError("must be the path of a Markdown file inside its folder")
    return path


def _told(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


Token = Annotated[str, Field(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z")]
Hash = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
Url = Annotated[str, Field(max_length=2_000), AfterValidator(_public)]
Title = Annotated[str, Field(min_length=1, max_length=300, pattern=r"\A[^\r\n]*\z"), AfterValidator(_told)]
Prose = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(_told)]
Brief = Annotated[str, Field(min_length=1, max_length=MAX_BRIEF), AfterValidator(_told)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Strict(BaseModel):
    """Exact fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# --- evidence ------------------------------------------------------------------------------------------------------


class EvidenceAsked(Strict):
    """The request, its initial turn, and the very brief that was submitted; nothing else leaves the house (E15)."""

    request_id: Token
    turn_id: Token
    brief: Brief


class Source(Strict):
    """A page that a search has cited; bare addresses in prose are none."""

    url: Url
    title: Title


class Finding(Strict):
    """One thing found, and which sources say so, by their addresses."""

    text: Prose
    sources: Annotated[list[Url], Field(min_length=1, max_length=MAX_SOURCES)]


class Evidence(Strict):
    """The normalized evidence: each source once, each finding with sources that are there."""

    sources: Annotated[list[Source], Field(max_length=MAX_SOURCES)]
    findings: Annotated[list[Finding], Field(max_length=100)]

    @model_validator(mode="after")
    def _related(self) -> Self:
        known = {source.url for source in self.sources}
        if len(known) != len(self.sources):
            raise ValueError("a source is named twice")
        if any(not known.issuperset(finding.sources) for finding in self.findings):
            raise ValueError("a finding cites what is no source")
        return self


# --- answer --------------------------------------------------------------------------------------------------------


class Snapshot(Strict):
    """The parent document as it was when the answer was asked for."""

    document: Annotated[str, Field(min_length=4, max_length=400), AfterValidator(_document)]
    source_hash: Hash
    text: Annotated[str, Field(max_length=MAX_DOCUMENT)]


class Message(Strict):
    """A turn of older requests, which had several."""

    role: Literal["user", "assistant"]
    text: Prose


class AnswerAsked(Strict):
    """The parent's snapshot, the evidence, and history for compatibility."""

    request_id: Token
    turn_id: Token
    brief: Brief
    evidence_job: Annotated[str, Field(pattern=r"\A[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\z")]
    snapshot: Snapshot
    evidence: Evidence
    history: Annotated[list[Message], Field(max_length=32)] = []


class Section(Strict):
    """A part of a report, with the sources it cites."""

    heading: Title
    text: Prose
    sources: Annotated[list[Url], Field(max_length=MAX_SOURCES)] = []


class Report(Strict):
    """A complete report."""

    title: Title
    sections: Annotated[list[Section], Field(min_length=1, max_length=50)]

    @property
    def cited(self) -> list[str]:
        """Every address it cites, once, in the order of its sections."""
        return list(dict.fromkeys(url for section in self.sections for url in section.sources))


# --- brief ---------------------------------------------------------------------------------------------------------


class Excerpt(Strict):
    """A chosen message or decision, by its id."""

    id: Token
    text: Prose


class BriefAsked(Strict):
    """An offer of research from a chat: its generation, what was chosen, what was decided, and the brief before."""

    offer_id: Token
    generation: Count
    sources: Annotated[list[Excerpt], Field(min_length=1, max_length=MAX_SOURCES)]
    decisions: Annotated[list[Excerpt], Field(max_length=MAX_SOURCES)] = []
    prior: Brief | None = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({source.id for source in self.sources}) != len(self.sources):
            raise ValueError("a source is named twice")
        return self


class Prepared(Strict):
    """A brief for that offer and generation, and which of its sources it uses."""

    offer_id: Token
    generation: Count
    brief: Brief
    sources: Annotated[list[Token], Field(max_length=MAX_SOURCES)]
