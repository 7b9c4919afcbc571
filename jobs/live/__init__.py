"""News for those who watch: from a notification after the commit to whoever follows the job or its tenant (A59, A60).

`bridge` hears notifications on one connection of the process, `hub` knows who follows what and looks it up, `follower`
holds what one connection has yet to be told, `access` says who may follow and for how long. The edges (websockets,
event streams) share all of it. News carries ids and numbers, never content; who hears it reads.
"""

from __future__ import annotations

from jobs.live.follower import Follower
from jobs.live.hub import Hub, hub

__all__ = ["Follower", "Hub", "hub"]
