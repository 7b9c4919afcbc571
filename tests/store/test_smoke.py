"""One job, end to end, through the services."""

from tests.driver import Driver


def test_a_job_goes_from_enqueue_to_completed(driver: Driver) -> None:
    """A2, E1: enqueue, claim, settle; the fold equals the row after each."""
    job_id = driver.enqueue("echo", {"value": "hello"})
    job = driver.claim_one()
    assert job.id == job_id
    driver.start(job)
    assert driver.complete(job, "hello").state == "completed"
