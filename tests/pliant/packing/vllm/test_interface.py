"""vLLM's scheduler is no public interface: this says what of it has changed since it was last looked at."""

from __future__ import annotations

import pytest

from tests.fixtures.packing import vllm_environment
from tests.fixtures.packing.vllm_wheel import ROOT

pytestmark = pytest.mark.slow

SEEN = "0.32"
SIGNATURES = {
    "AsyncScheduler.__init__": "self, args, kwargs",
    "AsyncScheduler.schedule": "self, throttle_prefills",
    "AsyncScheduler.add_request": "self, request",
    "AsyncScheduler.update_from_output": "self, scheduler_output, model_runner_output",
    "AsyncScheduler.finish_requests": "self, request_ids, finished_status",
    "AsyncScheduler.reset_prefix_cache": "self, reset_running_requests, reset_connector",
    "AsyncScheduler.shutdown": "self",
    "AsyncScheduler._preempt_request": "self, request, timestamp, drop_stale_output",
    "AsyncScheduler._free_request": "self, request, delay_free_blocks",
    "AsyncScheduler._handle_blocked_waiting_request": "self, request",
    "RequestQueue.add_request": "self, request",
    "RequestQueue.pop_request": "self",
    "RequestQueue.peek_request": "self",
    "RequestQueue.prepend_request": "self, request",
    "RequestQueue.prepend_requests": "self, requests",
    "RequestQueue.remove_request": "self, request",
    "RequestQueue.remove_requests": "self, requests",
    "RequestQueue.__bool__": "self",
    "RequestQueue.__len__": "self",
    "RequestQueue.__iter__": "self",
    "Request.get_finished_reason": "self",
    "Request.take_events": "self",
}


@pytest.fixture(scope="module")
def interface():
    (result,) = vllm_environment.run("vllm_interface.py", pythonpath=ROOT)
    return result


def test_the_parameters_of_what_is_called_and_overridden_are_those_that_were_seen(interface):
    changed = [
        f"{name} takes ({parameters}), and took ({SIGNATURES.get(name)}) in vLLM {SEEN}"
        for name, parameters in interface["signatures"].items()
        if parameters != SIGNATURES.get(name)
    ]
    assert not changed, f"vLLM {interface['version']}: " + "; ".join(changed)


def test_all_that_is_read_of_its_objects_is_still_there(interface):
    assert not interface["lacking"], f"vLLM {interface['version']} lacks " + "; ".join(interface["lacking"])
