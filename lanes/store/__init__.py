"""All SQL that writes lanes, and all of their locks. Only services, selectors and the watchdog open it.

Lock order, for every transaction:

1. the Quorum: who adds a lane shares it, who closes it or changes what its lanes wait for has it alone,
2. the Lane: whoever changes it or gives it a job waits for it; several of one transaction by id,
3. the Grant of who acts, shared: whoever takes it away waits,
4. jobs and all that they lock, in the order of `jobs.store`: a lane always comes first, and no job code locks one,
5. inserts: receipts, dependencies, associations.

Who waits here waits for a person's change, or for an enqueue into the same lane. The guard of every change is in its
WHERE: the version and the states that the rule was asked about.
"""
