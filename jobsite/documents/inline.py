"""Inline Markdown to plain text: links keep their words, images and tags go, one physical line comes out.

Every pattern is bounded, so that hostile text costs no more than it is long.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final

_CODE: Final = re.compile(r"(?<!`)(`{1,3})(?!`)([^`]{1,2000}?)\1(?!`)")
_AIM: Final = r"(?:\([^()\n]{0,1000}(?:\([^()\n]{0,200}\)[^()\n]{0,500})?\)|\[[^\[\]]{0,200}\])"
_IMAGE: Final = re.compile(r"!\[[^\[\]]{0,500}\]" + _AIM)
_LINK: Final = re.compile(r"\[([^\[\]]{0,500})\]" + _AIM)
_FOOTNOTE: Final = re.compile(r"\[\^[^\]\s]{1,60}\]")
_AUTOLINK: Final = re.compile(r"<((?:https?://|mailto:)?[^\s<>]{1,500}(?:[:@.]|//)[^\s<>]{1,500})>")
_TAG: Final = re.compile(r"</?[A-Za-z][\w:-]{0,40}(?:\s[^<>]{0,2000})?/?>|<![A-Za-z][^<>]{0,500}>|</?>")
_TEMPLATE: Final = re.compile(r"\{\{.{0,500}?\}\}|\{%.{0,500}?%\}|\{[#.:][^{}]{0,100}\}")
_STRONG: Final = re.compile(r"(\*\*\*|\*\*|~~|==)(?=\S)(.{1,2000}?)(?<=\S)\1")
_EMPHASIS: Final = re.compile(r"(?<![\w*\\])\*(?=[^\s*])([^*]{1,2000}?)(?<=\S)\*(?![\w*])")
_UNDERSCORE: Final = re.compile(r"(?<![\w\\])(_{1,3})(?=[^\s_])([^_]{1,500}(?:_[^_\s]+){0,20}?)(?<=\S)\1(?!\w)")
_SHORTCODE: Final = re.compile(r"(?<![\w:/]):[a-z][a-z0-9_+-]{1,40}:(?![\w:/])")
_TASK: Final = re.compile(r"\A\[[ xX-]\]\s+")
_BARE: Final = re.compile(r"\[([^\[\]]{1,200})\](?!\()")
_ESCAPE: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_EMPTY: Final = re.compile(r"\(\s*\)|\[\s*\]")
_DASHES: Final = re.compile(r"(?<!\S)-{2,3}(?!\S)")
_LINES: Final = re.compile(r"(?<!\S)(?:[=*#~_+]{2,}|-{4,})(?!\S)")
_BLANKS: Final = re.compile(r"\s+")
_HELD: Final = re.compile("\ue000(\\d+)\ue001")
# They turn the rest of the line around, and every line that it is put into; marks that end with their word stay.
_OVERRIDES: Final = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0x200B, 0xE000, 0xE001])


def plain(text: str) -> str:
    """The text that a reader sees, on one line."""
    held: list[str] = []

    def hold(said: str) -> str:
        held.append(said)
        return f"\ue000{len(held) - 1}\ue001"

    text = text.translate(_OVERRIDES)
    text = _CODE.sub(lambda found: hold(found[2].strip()), text)
    text = _ESCAPE.sub(lambda found: hold(found[1]), text)
    text = _marks(_links(text))
    text = html.unescape(text)
    text = _HELD.sub(lambda found: held[int(found[1])], text)
    return one_line(text)


def _links(text: str) -> str:
    text = _IMAGE.sub(" ", text)
    # A second time for links around what the first has taken away: badges.
    text = _LINK.sub(r"\1", _LINK.sub(r"\1", text))
    text = _FOOTNOTE.sub("", _TASK.sub("", text.strip()))
    text = _AUTOLINK.sub(r"\1", text)
    return _BARE.sub(r"\1", _TAG.sub(" ", text))


def _marks(text: str) -> str:
    text = _TEMPLATE.sub("", text)
    for pattern, kept in ((_STRONG, r"\2"), (_STRONG, r"\2"), (_EMPHASIS, r"\1"), (_UNDERSCORE, r"\2")):
        text = pattern.sub(kept, text)
    return _LINES.sub("", _DASHES.sub("-", _EMPTY.sub("", _SHORTCODE.sub("", text))))


def one_line(text: str) -> str:
    """The text without control characters and line breaks of any kind, blanks put together."""
    text = text.translate(_OVERRIDES)
    if not text.isprintable():
        text = "".join(" " if unicodedata.category(c) in _UNSEEN else c for c in text)
    text = _BLANKS.sub(" ", text).strip()
    return re.sub(r" (?=[,.;:!?)](?:\s|\Z))", "", text)


_UNSEEN: Final = frozenset({"Cc", "Zl", "Zp", "Cs"})
