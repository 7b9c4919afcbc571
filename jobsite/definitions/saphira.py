"""`saphira-job@1`: work whose contents belong to somebody else, done by their runners (E9, D3, D5)."""

from jobs.registry import external
from jobs.schemas import Opaque

# The one definition with an open codec: any JSON object within the limits.
saphira_job = external(
    "saphira-job", input=Opaque(), artifact=Opaque(), worker_group="saphira", max_claims=5,
    label="Saphira job", description="Takes and answers any JSON object; runners of Saphira know what it means.")
