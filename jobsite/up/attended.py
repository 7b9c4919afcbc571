"""`python -m jobsite.up.attended COMMAND ...`: a command that is told to end when who started it is gone, however.

That one holds the other end of our standard input; the kernel closes it even after a kill -9. The embedded server is
left as after any end, so that nothing stays behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

from jobs import clock

GRACE_S: Final = 20.0
START_S: Final = 60.0


def main() -> None:
    """Do what manage.py would do with our arguments, until it ends or who started us does."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    # Not before the server is joined: if who started us was its last user and is gone, it is for us to stop it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_watch, name="attended", daemon=True).start()
    from jobsite.cli import execute

    execute(["manage.py", *sys.argv[1:]])


def _watch() -> None:
    while sys.stdin.buffer.read(1):
        pass
    until = clock.monotonic() + START_S
    while signal.getsignal(signal.SIGTERM) is signal.SIG_IGN and clock.monotonic() < until:
        clock.sleep(0.02)
    # Once to drain, again to hand back at once.
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        clock.sleep(_grace_s())
    os._exit(1)


def _grace_s() -> float:
    from jobs.conf import conf

    return max(GRACE_S, conf().DRAIN_GRACE_S + 10)


if __name__ == "__main__":
    main()
