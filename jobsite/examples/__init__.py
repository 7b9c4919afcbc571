"""A runner over HTTP, to use and to read: standard library only, and nothing of this project is imported."""
