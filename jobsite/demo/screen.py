"""What the demo shows: a live bar and tables of rich on a terminal, plain lines everywhere else."""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, TextIO

Row = Sequence[object]


class Screen:
    """Plain lines: for files, pipes, and where rich is not installed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = -1

    def say(self, text: str) -> None:
        """One line."""
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()

    @contextmanager
    def bar(self, total: int) -> Iterator[None]:
        """While this is open, `done` moves the bar."""
        self._total = total
        yield
        self._shown = -1

    def done(self, count: int) -> None:
        """So many have ended: a line at each quarter."""
        quarter = count * 4 // max(1, self._total)
        if quarter > self._shown:
            self._shown = quarter
            self.say(f"   {count} of {self._total} done")

    def table(self, title: str, head: Row, rows: Sequence[Row]) -> None:
        """Rows of two columns."""
        self.say(f"\n{title}")
        width = max(len(str(row[0])) for row in [head, *rows])
        for row in rows:
            self.say(f"   {row[0]!s:<{width}}  {row[1]}")


class Terminal(Screen):
    """The same on a terminal, with colour, by rich."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._progress: Any = None

    def say(self, text: str) -> None:
        """One line, above the bar."""
        self._console.print(printable(text), markup=False, style="bold" if text.startswith("\n") else None)

    @contextmanager
    def bar(self, total: int) -> Iterator[None]:
        """A live bar."""
        from rich import progress

        columns = (progress.TextColumn("  "), progress.BarColumn(40), progress.MofNCompleteColumn(),
                   progress.TimeElapsedColumn())
        with progress.Progress(*columns, console=self._console) as self._progress:
            self._task = self._progress.add_task("", total=total)
            yield

    def done(self, count: int) -> None:
        """So many have ended."""
        self._progress.update(self._task, completed=count)

    def table(self, title: str, head: Row, rows: Sequence[Row]) -> None:
        """A table of two columns."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
        table.add_column(str(head[0]), style="cyan", overflow="fold", max_width=40)
        table.add_column(str(head[1]), overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(str(cell))) for cell in row))
        self._console.print(table)


def screen(stream: TextIO) -> Screen:
    """The screen for a stream, which from now on shows a mark for what its encoding does not have."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Terminal(stream) if stream.isatty() and importlib.util.find_spec("rich") else Screen(stream)


def printable(text: str) -> str:
    """The text without what a terminal would obey: names of files are anybody's."""
    return "".join(c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cs") else "?" for c in text)
