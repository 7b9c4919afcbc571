"""Running jobs in a process of Django: claim, slots, heartbeats, drain."""
