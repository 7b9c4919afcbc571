"""All SQL that writes jobs, and all locks. Only services and selectors open this package.

Lock order, for every transaction (a batch of a bulk operation or an erasure first tries an advisory lock of its own,
a Timer that fires is locked before all that its job locks):

1. the advisory locks of session keys, sorted,
2. the Target, and the Owner: claims share it without waiting, who changes it waits for them,
3. all affected Jobs, by id; then the retry windows of tenants that have a budget, by tenant,
4. their Attempts,
5. cap keys: ends of attempts wait for them, sorted; claims only try, before they touch a job,
6. held jobs of exclusive groups (skip locked),
7. lines, by id; before them the shared bucket locks of the lines to open,
8. inserts.

A claim never waits for anything, so its own order (lines, keys, jobs) is free; settle comes before claim where
both share a transaction. Heartbeats touch attempts alone and skip locked ones.
"""
