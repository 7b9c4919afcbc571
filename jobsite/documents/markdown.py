"""What a reader sees of a Markdown text: its titles, its paragraphs and its front matter, without any markup.

One pass over the lines; no rendering and no full grammar. Whatever the text, the answer is plain text, and the cost
stays linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from jobsite.documents import inline

MAX_CHARACTERS: Final = 256 * 1024
MAX_LINE: Final = 4_000
MAX_BLOCKS: Final = 2_000
MAX_JOINED: Final = 100

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_RULE: Final = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\Z")
_ITEM: Final = re.compile(r"[ \t]{0,8}(?:[-*+]|\d{1,9}[.)])(?:[ \t]+|\Z)")
_QUOTE: Final = re.compile(r" {0,3}(?:>[ \t]?)+")
_REFERENCE: Final = re.compile(r" {0,3}\[[^\]]{1,200}\]:[ \t]*\S*.*\Z")
_ALERT: Final = re.compile(r"\[!\w{1,20}\][ \t]*\Z")
_DIRECTIVE: Final = re.compile(
    r"(?::::+|!!!|\?\?\?\+?)[ \t]?.*\Z|(?:import|export)[ \t].*(?:from[ \t]|;[ \t]*\Z)|\{%.*%\}[ \t]*\Z")
_H1: Final = re.compile(r"[ \t]*<h([1-6])\b[^>]{0,500}>", re.IGNORECASE)
_BLOCK: Final = re.compile(
    r"[ \t]*</?(?:p|div|center|table|tr|td|ul|ol|li|br|hr|dl|dd|dt|details|summary|section|blockquote|picture|source|"
    r"nav)\b", re.IGNORECASE)
_BREAKS: Final = re.compile(r"</(?:p|div|center|td|tr|li|details|summary)>[ \t]*\Z", re.IGNORECASE)
_PAIR: Final = re.compile(r"([A-Za-z][\w -]{0,40})[ \t]*[:=][ \t]*(.*)\Z")

# A mark of the end, closing brackets and quotes, then a blank before something that can begin a sentence.
_END: Final = re.compile(r"""[.!?…؟۔][)"'»”’]*(?=\s+[^\sa-z])|[。！？]""")  # noqa: RUF001
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|nr|fig|sec|vol|ed|eds|al|st|dr|mr|mrs|ms|prof|inc|ltd|co|jr|sr|z\.b|bzw)"
    r"|\b[A-Z])\.\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A heading (`level` 1 to 6), a paragraph (0) or a list item (-1), as plain text."""

    level: int
    text: str

    @property
    def is_heading(self) -> bool:
        """Whether this is a title of some level."""
        return self.level > 0


@dataclass(slots=True)
class Outline:
    """The visible text of a document in its order; `front` is its front matter, by lower-case key."""

    front: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    has_code: bool = False
    has_table: bool = False

    @property
    def title(self) -> str | None:
        """The front matter's title, else the first heading of level 1, else one that the document begins with."""
        if self.front.get("title"):
            return self.front["title"]
        first = next((b for b in self.blocks[:40] if b.level == 1), None)
        begins = self.blocks[0] if self.blocks and self.blocks[0].is_heading else None
        return first.text if first else begins.text if begins else None

    @property
    def headings(self) -> list[str]:
        """All headings."""
        return [b.text for b in self.blocks if b.is_heading]

    @property
    def is_empty(self) -> bool:
        """Whether a reader sees nothing at all."""
        return not (self.blocks or self.has_code or self.has_table or self.front.get("title"))


def outline(text: str) -> Outline:
    """The outline of a Markdown text; only its first 256 Ki characters are looked at."""
    text = text[:MAX_CHARACTERS].removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    found = Outline()
    lines = [line[:MAX_LINE] for line in _without_comments(text).split("\n")]
    lines = lines[_front_matter(lines, found.front):]
    reader = _Reader(found)
    for line in lines:
        reader.line(line)
        if len(found.blocks) >= MAX_BLOCKS:
            break
    reader.flush()
    return found


def _without_comments(text: str) -> str:
    """HTML comments out, but not what only looks like one inside a code fence."""
    if "<!--" not in text:
        return text
    kept: list[str] = []
    fence: str | None = None
    inside = False
    for line in text.split("\n"):
        if not inside:
            fence = _fence_after(fence, line)
        if fence is None or inside:
            line, inside = _cut_comments(line, inside)
        kept.append(line)
    return "\n".join(kept)


def _cut_comments(line: str, inside: bool) -> tuple[str, bool]:
    parts = []
    while line:
        mark = "-->" if inside else "<!--"
        before, found, line = line.partition(mark)
        if not inside:
            parts.append(before)
        if not found:
            break
        inside = not inside
    return "".join(parts), inside


def _fence_after(fence: str | None, line: str) -> str | None:
    """The fence that is open behind this line, as the characters that opened it."""
    found = _FENCE.match(line.lstrip() if fence is None else line.strip())
    if found is None:
        return fence
    mark, rest = found.groups()
    if fence is None:
        # A backtick in the rest makes it inline code.
        return None if mark[0] == "`" and "`" in rest else mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not rest.strip()
    return None if closes else fence


def _front_matter(lines: list[str], into: dict[str, str]) -> int:
    """Read YAML (---) or TOML (+++) front matter's simple pairs; how many lines it takes."""
    if not lines or lines[0].rstrip() not in ("---", "+++"):
        return 0
    ends = (lines[0].rstrip(), "...") if lines[0].startswith("-") else ("+++",)
    end = next((n for n, line in enumerate(lines[1:200], 1) if line.rstrip() in ends), None)
    if end is None or not any(_PAIR.match(line) for line in lines[1:end]):
        return 0
    for line in lines[1:end]:
        if found := _PAIR.match(line):
            value = found[2].strip().strip("\"'").strip()
            if value not in ("|", ">", "|-", ">-", ""):
                into.setdefault(found[1].strip().lower(), inline.plain(value))
    return end + 1


class _Reader:
    """Takes lines one by one and makes blocks of them."""

    def __init__(self, into: Outline) -> None:
        self._into = into
        self._lines: list[str] = []
        self._level = 0
        self._fence: str | None = None
        self._blank = True

    def line(self, line: str) -> None:
        """Take the next line."""
        fence = _fence_after(self._fence, line)
        if fence is not None or self._fence is not None:
            self.flush()
            self._fence, self._into.has_code, self._blank = fence, True, True
            return
        if self._is_code(line):
            self._into.has_code = True
            return
        line = _QUOTE.sub("", line, count=1) if line.lstrip().startswith(">") else line
        self._text(line.rstrip())
        self._blank = not line.strip()

    def _is_code(self, line: str) -> bool:
        """Whether a line is indented code: four blanks behind an empty line, and not part of a list."""
        indented = line.startswith(("    ", "\t")) and bool(line.strip())
        return indented and self._blank and not self._lines and not _ITEM.match(line) and self._level >= 0

    def _text(self, line: str) -> None:
        if not line.strip():
            self.flush()
        elif self._lines and self._level == 0 and _UNDERLINE.match(line):
            self._level = 1 if line.strip()[0] == "=" else 2
            self.flush()
        elif found := _HEADING.match(line):
            self.flush()
            self._add(len(found[1]), found[2] or "")
        elif _RULE.match(line) or _REFERENCE.match(line) or _DIRECTIVE.match(line) or _ALERT.match(line):
            self.flush()
        elif line.lstrip().startswith("|") or set(line.strip()) <= set("|:- "):
            self._into.has_table = True
            self.flush()
        else:
            self._open(line)

    def _open(self, line: str) -> None:
        """Text of a heading in HTML, of a list item, or of a paragraph."""
        if found := _H1.match(line):
            self.flush()
            self._level = int(found[1])
        elif _BLOCK.match(line):
            self.flush()
        elif item := _ITEM.match(line):
            self.flush()
            self._level, line = -1, line[item.end():]
        elif not self._lines and self._level == -1 and not line.startswith((" ", "\t")):
            self._level = 0
        self._lines.append(line)
        if (self._level > 0 and "</h" in line.lower()) or _BREAKS.search(line):
            self.flush()

    def flush(self) -> None:
        """The end of whatever block is open."""
        if self._lines:
            self._add(self._level, " ".join(self._lines[:MAX_JOINED]))
            self._lines = []
            # Behind an item its list goes on: what is indented there is no code.
            self._level = min(self._level, 0)

    def _add(self, level: int, text: str) -> None:
        said = inline.plain(text[:MAX_LINE])
        if said:
            self._into.blocks.append(Block(level, said))
        if level > 0:
            self._level = 0


def sentences(text: str) -> Iterator[str]:
    """The sentences of a plain paragraph with the blanks before them, as well as they can be told apart.

    Which language it is nobody knows; put together they are the paragraph.
    """
    start = 0
    for found in _END.finditer(text):
        if _ABBREVIATION.search(text, max(0, start), found.start() + 1):
            continue
        yield text[start:found.end()]
        start = found.end()
    if rest := text[start:]:
        yield rest
