"""What is said of a document in one line: by title, name, headings and first sentences, and whatever the text (B44)."""

from __future__ import annotations

import pytest

from jobsite.documents.describing import EMPTY, LENGTH, describe

CORPUS = [
    ("README.md", "# Jobsite\n\nJobsite is a durable job server for Django.\n",
     "README for Jobsite: a durable job server for Django."),
    ("README.md", '<h1 align="center">\n  <img src="x.png"> Falcon\n</h1>\n\n[![b](https://b/s.svg)](https://b) '
     "![c](d)\n\n<p>The small framework for <b>fast</b> web services.</p>\n\n## Install\n",
     "README for Falcon: The small framework for fast web services."),
    ("lib/README.md", "Installation of it is easy, and this is how it goes.\n\n# Installation\n\nRun it.\n",
     "README for lib: Installation of it is easy, and this is how it goes."),
    ("moving.md", "Plan for the move\n=====\n\nStatus: draft\n\nWe move the *office* to `Bern` in [May](x).\n",
     "Plan for the move: We move the office to Bern in May."),
    ("0042.md", "# RFC 42: Fast claims\n\n## Motivation\n\nClaims take longer the more jobs there are waiting.\n",
     "RFC 42: Fast claims - Claims take longer the more jobs there are waiting."),
    ("idea.md", "# Claims in lines\n\nTenants stand in lines and take their turns.\n\n## Motivation\n\n## Drawbacks\n",
     "RFC about Claims in lines: Tenants stand in lines and take their turns."),
    ("search.md", "# Search\n\nPeople find what they have written last year.\n\n## Goals\n\n## Non-goals\n",
     "PRD for Search: People find what they have written last year."),
    ("doc.md", "---\ntitle: 'Backups'\ntype: Guide\ndescription: How to bring a lost table back.\n---\n# Other\n",
     "Guide to Backups: How to bring a lost table back."),
    ("doc.md", "+++\ntitle = \"Backups\"\n+++\n\nNobody misses a backup until the day on which it is needed.\n",
     "Document about Backups: Nobody misses a backup until the day on which it is needed."),
    ("app/CHANGELOG.md", "# Changelog\n\n## [2.1.0] - 2026-01-01\n\n- A thing\n\n## 2.0.0\n",
     "Changelog of app: the latest entry is 2.1.0"),
    ("tool/LICENSE.md", "Copyright 2026 A. Uthor\n\nPermission is hereby granted, free of charge, to any person\n",
     "Licence of tool: MIT License"),
    ("notes.md", "# Notes on caching\n\n<!-- # Secret\nhidden -->\nCaches are read often and written seldom here.\n",
     "Notes on caching: Caches are read often and written seldom here."),
    ("loop-times.md", "```sh\n# not a title\nmake it so\n```\n\n- every tick of a loop is short and bounded\n",
     "Document about loop times: every tick of a loop is short and bounded"),
    ("sql.md", "~~~\n``` <!-- not a comment\n~~~\n\n# SQL\n\nThe statements that we run are in this place. --> yes\n",
     "Document about SQL: The statements that we run are in this place. --> yes"),
    ("خطة.md", "# خطة المشروع 🚀\n\nتصف هذه الوثيقة مراحل العمل القادمة بالتفصيل.\n",
     "Document about خطة المشروع 🚀: تصف هذه الوثيقة مراحل العمل القادمة بالتفصيل."),
    ("計画.md", "# 計画\n\nこの文書は来年の作業の流れを説明するものです。次の文。\n",
     "Document about 計画: この文書は来年の作業の流れを説明するものです。次の文。"),
    ("t.md", "# Table of states\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "Document about Table of states"),
    ("x.md", "![only](a.png)\n\n```\ncode\n```\n", "Document about x"),
    ("x.md", "# A \u202egnp.txt\u202c and\x07 more\n\nEvery line is a line, and nothing turns it around\u2028here.\n",
     "Document about a gnp.txt and more: Every line is a line, and nothing turns it around here."),
    ("x.md", "", EMPTY), ("x.md", " \t\r\n\u00a0\n", EMPTY), ("x.md", "<!-- nothing -->\n", EMPTY),
    ("x.md", "\ufeff", EMPTY),
    ("UPGRADE.md", "# Guide to version 2\n\nMethods that were static are functions of the module now.\n",
     "Guide to version 2: Methods that were static are functions of the module now."),
]
HOSTILE = [
    "[" * 50_000, "*_`" * 40_000, "<" * 100_000, "![" * 50_000, "a. " * 60_000, "# " + "x" * 300_000, "> " * 60_000,
    "<!--" * 60_000, "e.g. " * 50_000, "(" * 90_000, "`" * 90_001, "- " * 90_000, "[](" * 50_000,
    "\n".join("|" * 9_000), "{{" * 60_000, ":a" * 90_000, "_a" * 90_000, "**a " * 60_000, "---\n" * 60_000,
    "\x00\ufffd\ud83d" * 30_000, "# a\n" * 60_000, "[a](b " * 40_000, "<a " * 60_000, "A. B. " * 40_000,
]


@pytest.mark.parametrize(("path", "text", "line"), CORPUS, ids=range(len(CORPUS)))
def test_a_document_is_told_in_one_line(path: str, text: str, line: str) -> None:
    """B44: type, purpose and subject, extractive, and `Empty document` for a blank one."""
    assert describe(text, path) == line
    assert describe(text.replace("\n", "\r\n"), path) == line


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_costs_no_more_than_its_length_and_gives_one_short_line(text: str) -> None:
    """B44: one physical line within its limits, whatever the source."""
    line = describe(text, "x.md")
    assert line
    assert len(line) <= LENGTH + 1
    assert len(line.splitlines()) == 1
    assert line.isprintable() or "\ufffd" in line or "\ud83d" in line


def test_a_line_is_cut_at_a_word_with_an_ellipsis() -> None:
    """B44: about 200 characters, for people."""
    line = describe("# Design of it\n\n" + "Word after word after word " * 30, "x.md")
    assert line.endswith("…")
    assert len(line) <= LENGTH
    assert line[:-1].split()[-1] in ("Word", "word", "after")
