"""One line about a document: its type, its subject and its purpose. Extractive and deterministic; no model (B44).

The title gives the subject, the first sentences that say something the purpose; `kinds` knows the type. A reader
should be able to choose between documents by these lines alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final
from unicodedata import combining

from jobsite.documents import kinds
from jobsite.documents.inline import one_line
from jobsite.documents.kinds import Found
from jobsite.documents.markdown import Block, Outline, outline, sentences

EMPTY: Final = "Empty document"
# For people; the contract allows 4,000 (B44).
LENGTH: Final = 200
_SUBJECT_LENGTH: Final = 90
_ROOM: Final = 30

_PAIRS: Final = re.compile(r"[^\W\d_][\w /-]{0,30}:\s+\S.{0,80}\Z")
_LEADS: Final = re.compile(
    r"\A(?:table of contents|contents|toc|note|warning|tip|important|see also|tl;?dr|abstract|summary|"
    r"introduction|overview)\s*[:.]?\s*\Z", re.IGNORECASE)
_TRIM: Final = re.compile(r"\A[\s:#*–—-]+|[\s:#*–—-]+\Z")  # noqa: RUF001
_ARTICLE: Final = re.compile(r"\A(?:The|An?)(?= \w)")
_SECTIONS: Final = re.compile(
    r"\A(?:installation|installing|install|usage|development|features|requirements|getting started|quick ?start|"
    r"licen[sc]e|why .*|about|documentation)\Z", re.IGNORECASE)
_GENERIC: Final = re.compile(
    r"\A(?:.*\bcontribut.*|.*\bsecurity\b.*|.*\bvulnerabilit.*|(?:version|release|change) history|change ?log|"
    r"history|changes|before you .*|general guidance|.*\bauthors\b.*|credits|treat .*)\Z", re.IGNORECASE)
_FOLDERS: Final = frozenset({
    ".github", "docs", "doc", "documentation", "licenses", "licences", "legal", "src", "notes", "html", "share", "en"})
_PACKAGE: Final = re.compile(r"\.(?:dist|egg)-info\Z")
_COPYRIGHT: Final = re.compile(r"(?:\W{0,3}copyright\b|all rights reserved)", re.IGNORECASE)
_CODELIKE: Final = re.compile(r"\S*[/$=_<>{}\\][^\s]*")
_LICENCES: Final = [(re.compile(pattern, re.IGNORECASE), name) for pattern, name in (
    (r"apache license|licensed under the apache", "Apache License 2.0"),
    (r"gnu lesser general public", "GNU LGPL"),
    (r"gnu affero", "GNU AGPL"),
    (r"gnu general public license", "GNU GPL"),
    (r"mozilla public license", "Mozilla Public License"),
    (r"sil open font license", "SIL Open Font License"),
    (r"permission is hereby granted, free of charge", "MIT License"),
    (r"permission to use, copy, modify,? and(?:/or)? distribute", "ISC License"),
    (r"redistributions? (?:and use )?in source and binary forms", "BSD License"),
    (r"this is free and unencumbered software", "The Unlicense"),
)]


def describe(text: str, path: str) -> str:
    """The line for a document with this text at this path; `Empty document` where a reader would see nothing."""
    seen = outline(text)
    if not text.strip() or seen.is_empty:
        return EMPTY
    where = PurePosixPath(path)
    title = _title(seen, where)
    found = _found(seen, title, where)
    lead = _lead(found, title, where, seen)
    return _joined(lead, _purpose(seen, found, lead, title))


def _title(seen: Outline, path: PurePosixPath) -> str | None:
    """What the document calls itself; not the first of several chapters, nor the name of its own file."""
    title = _TRIM.sub("", seen.title or "")
    begins = (bool(seen.blocks) and seen.blocks[0].is_heading) or "title" in seen.front
    if not title or _LEADS.match(title) or (_SECTIONS.match(title) and not begins):
        return None
    return _cut(title, _SUBJECT_LENGTH)


def _found(seen: Outline, title: str | None, path: PurePosixPath) -> Found:
    found = kinds.find(title, path, seen.front, seen.headings)
    if found.kind is kinds.DOCUMENT and _is_licence(seen):
        return Found(kinds.LICENCE, kinds.names(kinds.LICENCE, title or ""))
    return found


def _is_licence(seen: Outline) -> bool:
    """Whether there is little but a licence: legal files are often named after what they cover."""
    early = [b.text for b in seen.blocks if not b.is_heading][:2]
    return any(_COPYRIGHT.match(text) or _licence_in(text) for text in early)


def _lead(found: Found, title: str | None, path: PurePosixPath, seen: Outline) -> str:
    """Type and subject: "Design of Jobsite", "README for Jobsite", "Plan for the move"."""
    kind = found.kind
    if kind in (kinds.ISSUE, kinds.PULL):
        title = seen.front.get("name")
    elif kinds.by_name(path) is kind and title is not None and _says_only(kind, title, path):
        title = None
    elif found.in_title and title is not None:
        return title
    subject = title or _named(path)
    if subject is None or _same(subject, kind.name):
        return kind.name
    return f"{kind.name} {kind.joint} {_ARTICLE.sub(lambda a: a[0].lower(), subject)}"


def _says_only(kind: kinds.Kind, title: str, path: PurePosixPath) -> bool:
    """Whether a title tells no more than the file's name: "Changelog", "How to contribute", "Version 1.2"."""
    if _same(title, kind.name) or _same(title, path.stem) or kinds.version(title):
        return True
    return kind is not kinds.README and kind is not kinds.LICENCE and _GENERIC.match(title) is not None


def _named(path: PurePosixPath) -> str | None:
    """The subject by the file's name, or by the nearest telling folder's where the name says only the type."""
    if kinds.by_name(path) is None and path.stem.lower() != "index":
        return one_line(re.sub(r"[-_.\s]+", " ", path.stem)) or None
    for folder in path.parts[-2::-1]:
        if folder != "/" and folder.lower() not in _FOLDERS and "template" not in folder.lower():
            return one_line(re.sub(r"[-_\s]+", " ", _PACKAGE.sub("", folder.lstrip(".")))) or None
    return None


def _same(one: str, other: str) -> bool:
    return re.sub(r"\W", "", one).lower() == re.sub(r"\W", "", other).lower()


def _purpose(seen: Outline, found: Found, lead: str, title: str | None) -> str:
    """What the document is for, as it says itself."""
    if found.kind is kinds.LICENCE:
        return "" if found.in_title else _licence(seen) or ""
    for key in ("description", "summary", "about", "abstract", "subtitle", "tagline"):
        if len(seen.front.get(key, "")) > 10:
            return seen.front[key]
    said = next(_substantial(seen, title), "")
    if found.kind is kinds.CHANGELOG:
        latest = next((v for v in map(kinds.version, seen.headings) if v), None)
        return f"the latest entry is {latest}" if latest else said
    return said


def _licence(seen: Outline) -> str | None:
    return _licence_in(" ".join(block.text for block in seen.blocks[:30]))


def _licence_in(text: str) -> str | None:
    return next((name for pattern, name in _LICENCES if pattern.search(text)), None)


def _substantial(seen: Outline, title: str | None) -> Iterator[str]:
    """Paragraphs that say something, in order; then list items, then the headings put together."""
    paragraphs = [b.text for b in seen.blocks if b.level == 0]
    for text in paragraphs[:60]:
        if _says_something(text, title):
            yield text
    for text in [b.text for b in seen.blocks if b.level == -1][:60]:
        if _says_something(text, title):
            yield text
    if covered := _headings(seen.blocks, title):
        yield f"covers {covered}"
    yield from (text for text in paragraphs[:60] if not _same(text, title or ""))


def _says_something(text: str, title: str | None) -> bool:
    """Whether a paragraph is prose: not the title again, a list of pairs, of links or of numbers."""
    if _same(text, title or "") or _LEADS.match(text) or _PAIRS.match(text):
        return False
    words = re.findall(r"[^\W\d_]{2,}", text)
    letters = sum(map(len, words))
    # Scripts without blanks have long "words".
    enough = len(words) >= 5 or (letters >= 8 and any(ord(c) > 0x2E80 for c in text[:50]))
    links = len(re.findall(r"https?://\S+", text))
    pieces = len(re.findall(r" [|·•»] ", text))
    code = len(_CODELIKE.findall(text[:300]))
    return enough and letters * 2 >= len(text) - 20 and links * 6 <= len(words) and pieces < 3 and code < 6


def _headings(blocks: list[Block], title: str | None) -> str:
    said = [b.text for b in blocks if b.is_heading and not _same(b.text, title or "")]
    return ", ".join(said[:6])


def _joined(lead: str, purpose: str) -> str:
    purpose = _fitting(_without_subject(purpose, lead), LENGTH - len(lead) - 2)
    if not purpose:
        return one_line(lead)
    joint = " - " if ":" in lead or lead.endswith(("?", "!", ".")) else ": "
    return one_line(f"{lead}{joint}{purpose}")


def _without_subject(purpose: str, lead: str) -> str:
    """ "Jobsite is a job server" behind "README for Jobsite" says the name twice."""
    found = re.match(r"(?:the )?(.{1,60}?)(?:\s+\([^)]{1,40}\))?\s+(?:is|are)\s+(?=\w)", purpose, re.IGNORECASE)
    if found and found[1].lower() in lead.lower() and len(found[1]) > 2:
        return purpose[found.end():]
    return purpose


def _fitting(text: str, room: int) -> str:
    """As many whole sentences as there is room for, else the first one cut at a word."""
    if room < _ROOM:
        return ""
    chosen = ""
    for sentence in sentences(text):
        if len(chosen) + len(sentence) > room:
            break
        chosen += sentence
    if len(chosen) >= min(_ROOM, len(text)):
        return chosen.rstrip(":;,")
    return _cut(text, room).rstrip(":;,")


def _cut(text: str, length: int) -> str:
    """The text within `length` code points, cut behind a word, with an ellipsis where something is missing."""
    if len(text) <= length:
        return text
    kept = text[: length - 1]
    at = kept.rfind(" ")
    kept = kept[:at] if at > length // 2 else _whole(kept, text[length - 1])
    return kept.rstrip(" ,;:.-–—(") + "…"  # noqa: RUF001


def _whole(kept: str, following: str) -> str:
    # Not between an emoji or a letter and the marks that belong to it.
    joins = following in "\u200d\ufe0f" or bool(combining(following)) or "\U0001f3fb" <= following <= "\U0001f3ff"
    return kept[:-1] if joins or kept.endswith("\u200d") else kept
