"""Template tags of the console and the admin."""
