#!/usr/bin/env python
"""Django's command line for this site. Commands that need the database start the embedded one when none is named."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsite.settings")
    from jobsite.cli import execute

    execute(sys.argv)


if __name__ == "__main__":
    main()
