"""The rows of Jobsite: one noun or a close pair a module."""

from jobs.models.attempt import Attempt, AttemptCap, AttemptLog
from jobs.models.bulk_operation import BulkItem, BulkOperation
from jobs.models.claim_request import ClaimRequest
from jobs.models.command import Command
from jobs.models.dead_letter import DeadLetter
from jobs.models.delivery import CallbackHost, CallbackSecret, Delivery, DeliveryTry
from jobs.models.erasure import Erasure
from jobs.models.grant import Grant
from jobs.models.job import Job
from jobs.models.key import Key
from jobs.models.line import ClaimLine
from jobs.models.owner import Owner
from jobs.models.receipt import Artifact, Receipt
from jobs.models.target import Target
from jobs.models.tenancy import Limits, Tenant, TenantWindow, Workspace
from jobs.models.throttle import Throttle
from jobs.models.timer import Firing, Timer
from jobs.models.traffic import Traffic
from jobs.models.worker import Leader, Worker

__all__ = [
    "Artifact", "Attempt", "AttemptCap", "AttemptLog", "BulkItem", "BulkOperation", "CallbackHost", "CallbackSecret",
    "ClaimLine", "ClaimRequest", "Command", "DeadLetter", "Delivery", "DeliveryTry", "Erasure", "Firing", "Grant",
    "Job", "Key", "Leader", "Limits", "Owner", "Receipt", "Target", "Tenant", "TenantWindow", "Throttle", "Timer",
    "Traffic", "Worker", "Workspace",
]
