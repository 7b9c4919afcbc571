"""Commands of lanes."""
