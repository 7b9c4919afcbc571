"""Template tags of lanes' pages."""
