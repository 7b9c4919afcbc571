"""`python -m jobsite.demo.worker`: a `runworker` that drains when the demo is gone, however that ended.

The demo holds the other end of our standard input; the kernel closes it even after a kill -9. The embedded server is
left as after any drain, so that nothing of the demo stays behind.
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
    """Work as `runworker` with our arguments does, until it ends or the demo does."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    # Not before the server is joined: if the demo was its last user and is gone, it is for us to stop it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_watch, name="demo-watch", daemon=True).start()
    from jobsite.cli import execute

    execute(["manage.py", "runworker", *sys.argv[1:]])


def _watch() -> None:
    while sys.stdin.buffer.read(1):
        pass
    until = clock.monotonic() + START_S
    while signal.getsignal(signal.SIGTERM) is signal.SIG_IGN and clock.monotonic() < until:
        clock.sleep(0.02)
    # Once to drain, again to hand back at once.
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        clock.sleep(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    main()
