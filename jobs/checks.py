"""System checks: settings that cannot work are named before anything runs."""
