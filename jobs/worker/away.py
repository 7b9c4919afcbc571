"""The worker's side of an attempt whose handler runs in a child."""

from __future__ import annotations

from collections.abc import Callable

from jobs.registry import Definition
from jobs.services.assignments import Claimed
from jobs.worker.context import Run
from jobs.worker.wire import Message


class Away(Run):
    """The parent's side of a run whose handler is in a child: its time begins there, and its stop is sent there."""

    __slots__ = ("_is_out", "tell")

    def __init__(self, job: Claimed, definition: Definition, by: str) -> None:
        super().__init__(job, definition, by)
        self.tell: Callable[[Message], None] | None = None
        self._is_out = False
        self.until = None

    def handed_out(self) -> None:
        """A ready child has it: its time counts from now on."""
        self._is_out = True
        self.begin_time()

    def said(self, message: Message) -> None:
        """What its child says of it."""
        if "log" in message:
            self.log(str(message["log"]))
        elif "diagnostic" in message:
            if not self.over:
                self.note(dict(message["diagnostic"]))
        elif "publishing" in message:
            self.begin_publishing(float(message["publishing"]))
        elif "settled" in message:
            self.settled = True
        elif "masks" in message:
            self.masks = tuple(map(str, message["masks"]))

    def stop(self, reason: str) -> None:
        """Ask the handler to stop."""
        super().stop(reason)
        if (tell := self.tell) is not None:
            tell({"stop": reason})

    def heard(self) -> None:
        """Commands to this job are unread; one that no child has yet reads them when it begins."""
        if self._is_out and (tell := self.tell) is not None:
            tell({"heard": True})
