"""Callbacks: what is to be told to whom, each try of it, the secrets that sign it, and hosts that rest (E11)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.clock import Now
from jobs.ids import uuid7
from jobs.models.tenancy import Tenant


class Delivery(models.Model):
    """One event of one chain of a job, to be told; a job sends it. Its id is what the receiver knows it by."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False, db_comment="The webhook-id, over all tries")
    job_id = models.UUIDField(db_comment="Of which it tells; no foreign key, as of receipts")
    workspace_id = models.BigIntegerField()
    tenant_id = models.BigIntegerField()
    sender_id = models.UUIDField(db_comment="The job that sends it; another one with each replay")
    event = models.CharField(max_length=16)
    chain = models.IntegerField()
    revision = models.IntegerField(db_comment="The job's at this event: what receivers sort by")
    job_state = models.CharField(max_length=16)
    reason = models.CharField(max_length=512, null=True)
    at = models.DateTimeField(db_comment="When it happened")
    host = models.CharField(max_length=253, db_comment="Whom it goes to; emptied by redaction")
    site = models.BooleanField(db_comment="To the site's own callback, not to the job's")
    state = models.CharField(max_length=16, default="pending")
    tries = models.IntegerField(default=0)
    replays = models.IntegerField(default=0)
    http_status = models.IntegerField(null=True, db_comment="Of the last try that was answered")
    ms = models.IntegerField(null=True, db_comment="How long the last try took")
    code = models.CharField(max_length=64, null=True, db_comment="Why the last try did not deliver")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "jobs_delivery"
        verbose_name_plural = "deliveries"
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["job_id", "chain", "event"], name="delivery_once"),
            models.UniqueConstraint(fields=["sender_id"], name="delivery_sender_once"),
            models.CheckConstraint(name="delivery_state_known",
                                   condition=Q(state__in=["pending", "delivered", "failed", "dropped"])),
        ]
        indexes = [
            models.Index("tenant_id", "id", name="delivery_by_tenant"),
            models.Index("state", "id", name="delivery_by_state", condition=~Q(state="delivered")),
            models.Index("tenant_id", "state", "id", name="delivery_by_tenant_state",
                         condition=~Q(state="delivered")),
        ]

    def __str__(self) -> str:
        return f"{self.event} of {self.job_id}"


class DeliveryTry(models.Model):
    """One time that it was sent, or could not be."""

    id = models.BigAutoField(primary_key=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, db_index=False, related_name="log")
    job_id = models.UUIDField(db_comment="Of which it tells")
    number = models.IntegerField()
    at = models.DateTimeField()
    http_status = models.IntegerField(null=True)
    ms = models.IntegerField()
    code = models.CharField(max_length=64, null=True)
    answer = models.TextField(null=True, db_comment="The first KiB of what came back, as text; for operators alone")

    class Meta:
        db_table = "jobs_delivery_try"
        verbose_name_plural = "delivery tries"
        default_permissions = ()
        indexes = [models.Index("delivery", "id", name="delivery_try_in_order"),
                   models.Index("job_id", name="delivery_try_by_job")]

    def __str__(self) -> str:
        return f"try {self.number} of {self.delivery_id}"


class CallbackHost(models.Model):
    """A host that failed lately. Who answers well has no row."""

    name = models.CharField(primary_key=True, max_length=200, db_comment="The exclusive group of its deliveries")
    failures = models.IntegerField(db_comment="In a row")
    open_until = models.DateTimeField(null=True, db_comment="No delivery to it begins before")

    class Meta:
        db_table = "jobs_callback_host"
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class CallbackSecret(models.Model):
    """A secret that signs a tenant's callbacks; the untenanted tenant's sign those of tenants without their own."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, db_index=False, related_name="+")
    sealed = models.TextField(db_comment="Encrypted under SECRET_KEY: a signature needs the secret itself")
    hint = models.CharField(max_length=16, db_comment="Its last characters, to tell two apart")
    by = models.CharField(max_length=200)
    created_at = models.DateTimeField(db_default=Now())
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "jobs_callback_secret"
        default_permissions = ()
        indexes = [models.Index("tenant", "id", name="callback_secret_of_tenant")]

    def __str__(self) -> str:
        return f"callback secret {self.pk}"
