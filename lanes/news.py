"""News of lanes: after the commit, by a notification of ids alone; whoever hears one reads (E14.18).

One line a change: `workspace quorum lane version`, the lane's two as `-` where it is the quorum that changed. People
change lanes, so nothing is gathered here: a lost one costs a follower its next look.
"""

from __future__ import annotations

import logging
import uuid
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connection, transaction

log = logging.getLogger("lanes.news")
CHANNEL = "lanes_news"
_NONE = "-"


class News(NamedTuple):
    """What has changed, and where it is."""

    workspace_id: int
    quorum_id: uuid.UUID
    lane_id: uuid.UUID | None = None
    version: int | None = None


def parse(payload: str) -> News | None:
    """What a notification says; None for what none of ours would."""
    try:
        workspace, quorum, lane, version = payload.split(" ")
        if lane == _NONE:
            return News(int(workspace), uuid.UUID(quorum))
        return News(int(workspace), uuid.UUID(quorum), uuid.UUID(lane), int(version))
    except ValueError:
        return None


def after_commit(news: News) -> None:
    """Tell once the present transaction has committed."""
    lane = f"{news.lane_id.hex} {news.version}" if news.lane_id is not None else f"{_NONE} {_NONE}"
    payload = f"{news.workspace_id} {news.quorum_id.hex} {lane}"
    transaction.on_commit(lambda: _tell(payload), robust=True)


def _tell(payload: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])
    except (DatabaseError, InterfaceError):
        # A hint only: who follows looks again anyway.
        log.debug("news of a lane was lost", exc_info=True)
