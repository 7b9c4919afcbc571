"""Markdown documents as the site describes them: found in a folder, read, and told in one line.

Reading and wording are plain Python and know no job; `jobsite.definitions.documents` makes a job of them, and
`catalogue` reads what those jobs made.
"""
