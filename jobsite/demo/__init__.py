"""`manage.py demo`: the main job on real documents, with a worker killed and a dead letter answered on the way.

`story` tells it, `fleet` has the worker processes, `figures` reads what happened, `proof` checks it, `screen` shows it.
`samples` puts lanes and a timer beside it for who stays to look.
"""

from __future__ import annotations

from typing import Final

# A dead worker is noticed within seconds: nobody wants to watch a lease of half a minute run out.
ENVIRONMENT: Final = {"JOBS_LEASE_S": "3", "JOBS_RECOVERY_GRACE_S": "1", "JOBS_DRAIN_GRACE_S": "1.5"}


class DemoFailed(Exception):
    """The demo did not come to its end; the message says why."""
