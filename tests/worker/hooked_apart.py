"""The definitions of `hooked` once more, in isolated children."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction

from jobs import job
from tests.definitions import trace
from tests.worker import hooked

log = logging.getLogger("myshop")


@job("chats-apart", retry=None)
def chats_apart(run: Any, how: str = "") -> None:
    """Logs from a child; prints; dies if told."""
    hooked.chatter(how)
    print("printed, not logged")
    if how == "dies":
        import os

        os._exit(7)


@job("spanned-apart", retry=None)
def spanned_apart(run: Any, path: str = "", how: str = "") -> str:
    """Within the site's middleware."""
    return hooked._within(path, how)


@job("books-apart", retry=None, atomic=True, timeout_s=60, lease_s=3)
def books_apart(run: Any, mode: str = "", path: str = "") -> str:
    """Its row commits with its end."""
    hooked.write(run.job_id)
    trace(path, "written")
    hooked.misuse(mode)
    if mode == "on_commit":
        transaction.on_commit(hooked.fail)
        transaction.on_commit(lambda: trace(path, f"committed {run.settled}"))
    return mode


@job("slow-hook-apart", retry=None, publish=hooked._slow_hook)
def slow_hook_apart(run: Any, path: str, gate: str, before: bool = False) -> str:
    """Its hook takes longer than it may."""
    return "x"
