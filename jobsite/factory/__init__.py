"""What the nine payload kinds of `factory` promise, take and are given: contracts, payloads, leases, watchdog (E9)."""
