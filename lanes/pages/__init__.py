"""Lanes in the console: a board, one lane, quorums. What somebody sees and may press is said by their grants alone.

One module a page, as in `jobs.pages`: read the request, ask `sightings` or one service, render. Permissions of Django's
open nothing here, and being a superuser neither (E15).
"""
