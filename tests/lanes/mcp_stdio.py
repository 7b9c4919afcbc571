"""`manage.py mcp` on the test database: `python -m tests.lanes.mcp_stdio DATABASE`; the key is in the environment."""

from __future__ import annotations

import os
import sys


def main(database: str) -> None:
    """Serve until the input ends."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "jobsite.settings"
    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = database
    from jobsite.cli import execute

    execute(["manage.py", "mcp"])


if __name__ == "__main__":
    main(*sys.argv[1:])
