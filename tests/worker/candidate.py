"""A process that wants to lead one duty and writes down every moment in which it believes that it does.

`python -m tests.worker.candidate FILE LEASE_S`: lines of its process id and the steady clock, which all processes of
a machine share, taken before it looked at its belief.
"""

from __future__ import annotations

import os
import sys
import time

LOOK_S = 0.01


def main(path: str, lease_s: float) -> None:
    """Ask, believe, and write it down until killed."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    import django

    django.setup()
    from jobs.clock import Every
    from jobs.services.leaders import Leadership
    from jobs.worker.connection import TROUBLE, drop, own_connection

    here = Leadership({"test": lease_s})
    renewal = Every(here.every_s)
    told = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with own_connection():
        while True:
            if renewal.due():
                try:
                    here.renew()
                except TROUBLE:
                    drop()
            at = time.monotonic()
            if here.leads("test"):
                os.write(told, f"{os.getpid()} {at}\n".encode())
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
