"""The time limits of the environment, and the process that keeps them."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from pliant.errors import InputError
from pliant.flows.watch import guard
from pliant.settings import FlowSettings
from tests.fixtures.places import ROOT

WORK = """
import subprocess, sys, time
sys.path.insert(0, {root!r})
from pliant.flows.watch.guard import guarded
with guarded({seconds}):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    {work}
"""


def test_the_process_is_ended_when_prefects_own_limit_has_passed():
    limits = FlowSettings.read({"PLIANT_FLOW_HOURS": "0.5", "PLIANT_TASK_HOURS": "0.25", "PLIANT_ALARM_MINUTES": "2"})
    assert (limits.flow_hours, limits.task_hours, limits.alarm_minutes) == (0.5, 0.25, 2.0)
    assert guard.with_grace(1800.0) == 1836.0


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "an hour", ""])
def test_a_limit_that_is_no_positive_number_is_refused(text):
    with pytest.raises(InputError, match="PLIANT_FLOW_HOURS"):
        FlowSettings.read({"PLIANT_FLOW_HOURS": text})


def _start(seconds: float, work: str) -> subprocess.Popen[str]:
    script = WORK.format(root=str(ROOT), seconds=seconds, work=work)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_process_whose_time_is_over_is_killed_with_its_children():
    process = _start(0.5, "child.wait()")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -9
    assert _gone(int(output))


def test_an_error_ends_the_children_and_work_that_ends_in_time_leaves_them():
    failing = _start(600, "raise ValueError('of the work')")
    output, errors = failing.communicate(timeout=60)
    assert "of the work" in errors
    assert _gone(int(output))
    process = _start(600, "pass")
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    assert process.wait(60) == 0
    assert child.is_running()
    child.kill()


def test_a_server_that_is_gone_does_not_keep_a_hung_run_alive(capsys):
    assert not guard.report(guard.PrefectRun("http://127.0.0.1:1/api", "1"), "The run hung.", seconds=1)
    assert "was not told that a run hung" in capsys.readouterr().err
