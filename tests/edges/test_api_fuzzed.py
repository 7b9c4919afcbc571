"""The served API, asked whatever its document allows and more: no server error, and no answer that is not described."""

from __future__ import annotations

import os
import time

import pytest

from tests.edges import fuzzing
from tests.edges.caller import Caller
from tests.edges.test_api_served import site  # noqa: F401

LONG = os.environ.get("JOBSITE_LONG") == "1"
# The short form is the gate's: its examples are the same every time, and it gives up early where the machine is slow.
EXAMPLES, PATIENCE_S = (300, 1_500) if LONG else (10, 40)


@pytest.mark.timeout(1_800 if LONG else 180)
def test_no_answer_is_a_server_error_or_is_not_described(site, settings):  # noqa: F811
    """API4, RELIABILITY 5.7: schemathesis against the served document; JOBSITE_LONG=1 asks at length."""
    settings.ROOT_URLCONF = "tests.edges.urls"
    api = Caller("fuzzed")
    known = fuzzing.known(api)
    asked, faults, until = 0, [], time.monotonic() + PATIENCE_S
    for operation in fuzzing.operations(f"http://127.0.0.1:{site.port}"):
        faults += fuzzing.ask(operation, api.secret, known, EXAMPLES, until)
        asked += 1
    assert faults == []
    assert asked > 20
