"""A report as canonical MDX: text of a model is text, and only what the evidence retained is a link (B45)."""

from __future__ import annotations

import re

from jobsite.research.contents import Report, Source

# What MDX would run or Markdown would link; each has a form that shows the same character and does nothing.
_ACTIVE = re.compile(r"[\\`*_\[\]{}<>&!#|~$]")
_LEADING = re.compile(r"^([ \t]*)(import|export|[-+=:]|\d+[.)])", re.MULTILINE)
_SCHEME = re.compile(r"(https?|ftp|mailto|www)([:.])", re.IGNORECASE)


def escaped(text: str) -> str:
    """Any text as MDX that shows just this text."""
    shown = _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", text.replace("\r\n", "\n").replace("\r", "\n"))
    shown = _LEADING.sub(lambda found: f"{found[1]}&#{ord(found[2][0])};{found[2][1:]}" if not found[2][0].isdigit()
                         else f"{found[1]}{found[2][:-1]}&#{ord(found[2][-1])};", shown)
    return _SCHEME.sub(lambda found: f"{found[1]}&#{ord(found[2])};", shown)


def _line(text: str) -> str:
    return " ".join(escaped(text).split())


def _paragraphs(text: str) -> str:
    parts = (_line(part) for part in re.split(r"\n\s*\n", text.replace("\r\n", "\n")))
    return "\n\n".join(part for part in parts if part)


def mdx(report: Report, sources: list[Source]) -> str:
    """The child document: the report, then the sources that it cites, numbered."""
    titles = {source.url: source.title for source in sources}
    numbers = {url: n for n, url in enumerate(report.cited, 1)}
    parts = [f"# {_line(report.title)}"]
    for section in report.sections:
        cited = "".join(f" [{numbers[url]}]({_target(url)})" for url in section.sources)
        parts += [f"## {_line(section.heading)}", _paragraphs(section.text) + cited]
    if numbers:
        listed = (f"{n}. [{_line(titles[url])}]({_target(url)})" for url, n in numbers.items())
        parts += ["## Sources", "\n".join(listed)]
    return "\n\n".join(parts) + "\n"


def _target(url: str) -> str:
    # Brackets would end the link; the wire has a form for them.
    return url.replace("(", "%28").replace(")", "%29")
