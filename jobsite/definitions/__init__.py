"""The definitions that this site registers, one module a family (REQUIREMENTS E9)."""

DEFINITIONS = ["basic", "documents", "factory", "lanes", "research", "saphira"]
