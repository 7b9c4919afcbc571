"""What sort of document a Markdown text is: by its title, its file's name, or the headings it has.

Data and three small look-ups. The order is the order of trust: a title that says so, a name that everybody knows,
a word in the name, a set of headings that only one sort has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A sort of document: how it is called, and how its subject follows ("PRD" + "for" + ...)."""

    name: str
    joint: str = "on"


class Found(NamedTuple):
    """The kind, and whether the title names it already."""

    kind: Kind
    in_title: bool


DOCUMENT: Final = Kind("Document", "about")
README: Final = Kind("README", "for")
CHANGELOG: Final = Kind("Changelog", "of")
LICENCE: Final = Kind("Licence", "of")
PRD, RFC, PLAN = Kind("PRD", "for"), Kind("RFC", "about"), Kind("Plan", "for")
ISSUE, PULL = Kind("Issue template", "for"), Kind("Pull request template", "for")
GUIDE, DECISION, NOTES = Kind("Guide", "to"), Kind("Decision record", "about"), Kind("Notes", "on")
DESIGN, MEETING, REPORT = Kind("Design", "of"), Kind("Meeting notes", "on"), Kind("Report", "on")

# By the whole stem of the file's name, in lower case with "-" between words.
_NAMES: Final = {
    "readme": README, "read-me": README,
    **dict.fromkeys(("changelog", "changes", "history", "news", "releases", "release-notes", "change-log"), CHANGELOG),
    **dict.fromkeys(("license", "licence", "copying", "unlicense", "copyright", "notice"), LICENCE),
    **dict.fromkeys(("contributing", "contribute"), Kind("Contribution guide", "for")),
    **dict.fromkeys(("authors", "contributors", "credits", "maintainers"), Kind("List of contributors", "of")),
    **dict.fromkeys(("agents", "claude", "copilot-instructions", "gemini"), Kind("Instructions for agents", "on")),
    **dict.fromkeys(("install", "installing", "installation"), Kind("Installation guide", "for")),
    **dict.fromkeys(("upgrading", "upgrade", "migrating", "migration"), Kind("Upgrade guide", "for")),
    **dict.fromkeys(("bug-report", "feature-request", "support-request", "issue-template"), ISSUE),
    "pull-request-template": PULL,
    "code-of-conduct": Kind("Code of conduct", "of"), "security": Kind("Security policy", "of"),
    "support": Kind("Support page", "for"), "governance": Kind("Governance", "of"), "todo": Kind("To-do list", "for"),
}

# Words of a title or of a name, most telling first.
_WORDS: Final = [(re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), kind) for pattern, kind in (
    ("change ?log|release notes", CHANGELOG),
    ("prd|product requirements(?: document)?", PRD),
    ("rfc", RFC),
    ("adr|architecture decision(?: record)?|decision record", DECISION),
    ("meeting notes|minutes", MEETING),
    ("post-?mortem|retrospective", Kind("Post-mortem", "on")),
    ("code of conduct", Kind("Code of conduct", "of")),
    ("security policy", Kind("Security policy", "of")),
    ("third[- ]party (?:notices?|licen[sc]es?)", Kind("Third-party notices", "for")),
    ("licen[sc]e", LICENCE),
    ("run ?book|play ?book", Kind("Runbook", "for")),
    ("road ?map", Kind("Roadmap", "for")),
    ("faq|frequently asked questions", Kind("FAQ", "on")),
    ("glossary", Kind("Glossary", "of")),
    ("cheat ?sheet", Kind("Cheat sheet", "for")),
    ("check ?list", Kind("Checklist", "for")),
    ("tutorial|walkthrough", Kind("Tutorial", "on")),
    ("specification|spec", Kind("Specification", "of")),
    ("requirements", Kind("Requirements", "for")),
    ("proposal", Kind("Proposal", "for")),
    ("design|architecture", DESIGN),
    ("plan", PLAN),
    ("report|findings|evaluation", REPORT),
    ("benchmarks?", Kind("Benchmarks", "of")),
    ("guide|how[- ]?to|getting started|quick ?start|handbook|manual|guidelines", GUIDE),
    ("reference", Kind("Reference", "of")),
    ("policy", Kind("Policy", "on")),
    ("notes?", NOTES),
    ("(?:test )?cases", Kind("Cases", "of")),
)]

# Headings that together give a document away: at least two of a row.
_HEADINGS: Final = (
    (RFC, {"motivation", "alternatives", "drawbacks", "unresolved questions", "prior art", "alternatives considered"}),
    (PRD, {"goals", "non-goals", "user stories", "success metrics", "personas", "target users"}),
    (DECISION, {"decision", "consequences", "considered options", "decision drivers"}),
    (MEETING, {"attendees", "action items", "agenda"}),
    (PLAN, {"milestones", "tasks", "phases", "timeline", "deliverables", "next steps"}),
    (README, {"installation", "usage", "license", "licence", "contributing", "getting started", "features"}),
)
# A release's heading: its number, and behind it nothing but a date or a remark in brackets.
_VERSION: Final = re.compile(
    r"\W{0,2}(?:version |release |v)?(\d{1,5}(?:\.\d{1,5}){1,3}[^\s\])]{0,20})[\])]?"
    r"(?:\s*[\[(].{0,60}|\s*[-–—/:,]?\s*(?:\w{3,9} )?\d.{0,24})?\Z|\W{0,2}unreleased\W{0,2}\Z", re.IGNORECASE)  # noqa: RUF001
_NUMBERING: Final = re.compile(r"\A(?:\d{1,3}[.)]|[ivxIVX]{1,4}[.)]|step \d+:)\s*")


def find(title: str | None, path: PurePosixPath, front: dict[str, str], headings: Sequence[str]) -> Found:
    """The kind of a document with this title, path, front matter and headings."""
    said = (title or "")[:120]
    own = _by_words(front.get("type") or front.get("kind") or "")
    kind = by_name(path) or own or _by_words(said) or _by_words(_name(path.stem).replace("-", " "))
    kind = kind or _by_headings(headings) or DOCUMENT
    return Found(kind, names(kind, said))


def by_name(path: PurePosixPath) -> Kind | None:
    """The kind of a file whose whole name says it, as README.md and LICENSE-2.0.md do."""
    name = _name(path.stem)
    bare = re.sub(r"-?v?\d+(?:-\d+)*\Z|-[a-z]{2}\Z", "", name)
    folder = _name(path.parent.name)
    return _NAMES.get(name) or _NAMES.get(bare) or (_NAMES.get(folder) if folder.endswith("-template") else None)


def _name(stem: str) -> str:
    return re.sub(r"[\W_]+", "-", stem).strip("-").lower()


def names(kind: Kind, title: str) -> bool:
    """Whether a title says of which kind the document is."""
    words = [pattern for pattern, named in _WORDS if named is kind]
    noun = kind.name.rpartition(" ")[2].lower()
    return noun in title.lower() or any(pattern.search(title) for pattern in words)


def version(heading: str) -> str | None:
    """The version that a changelog's heading is about."""
    found = _VERSION.match(heading)
    return found[1].rstrip("]):,") if found and found[1] else None


def _by_words(text: str) -> Kind | None:
    return next((kind for pattern, kind in _WORDS if pattern.search(text)), None) if text else None


def _by_headings(headings: Sequence[str]) -> Kind | None:
    if len(headings) > 2 and sum(1 for h in headings if _VERSION.match(h)) * 2 > len(headings):
        return CHANGELOG
    plain = {_NUMBERING.sub("", h).strip(" :").lower() for h in headings[:200]}
    return next((kind for kind, words in _HEADINGS if len(plain & words) >= 2), None)
