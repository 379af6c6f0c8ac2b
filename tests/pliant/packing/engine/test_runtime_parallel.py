"""An engine over two processes: the same texts, the same pages, and no process or file left behind at any end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import psutil
import pytest

from pliant.errors import InputError, WorkerError
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Sampling
from pliant.packing.scheduling.policy import Rules
from tests.fixtures.packing.generators import (
    CONTEXT,
    HOSTED,
    LIMIT,
    SCARCE,
    Desk,
    prompts,
    running,
    submission,
    tiny_generator,
)
from tests.fixtures.places import ROOT

COUNT = 14
FULL = Rules("paged", CONTEXT)
SAMPLED = Sampling(temperature=0.9, top_p=0.95, top_k=40)
LOADS = ((FULL, SCARCE), (FULL, HOSTED), (None, SCARCE))  # discarding, offloading, transformers' own scheduler
ALONE = """
import os, time
from tests.fixtures.packing.generators import *
with running(SCARCE, Rules("paged", CONTEXT), processes=2) as (engine, desk):
    for id, ids in enumerate(prompts(14)):
        engine.submit(submission(id, ids, force=LIMIT))
    desk.wait_tokens(0, 2)
    print("under way", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def scratch(tmp_path, monkeypatch, started_quickly):
    """Return the folders of groups; empty when they have ended."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def others(pid: int | None = None) -> list[psutil.Process]:
    """Return the processes below a process that belong to its group, spawned by it or forked by its fork server."""
    return [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if is_started_by(child, "spawn_main")
        or all(is_started_by(each, "forkserver") for each in (child, child.parent()))
    ]


def is_started_by(process: psutil.Process | None, word: str) -> bool:
    return process is not None and any(word in argument for argument in process.cmdline())


def generate(memory, rules, processes: int, check: bool = False) -> tuple[list[tuple[int, ...]], int]:
    """Return texts, every other one sampled, and the number of preemptions."""
    with running(memory, rules, processes=processes, margin=0.0) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, sampling=replace(SAMPLED, seed=id) if id % 2 else Sampling()))
        while check and sum(map(desk.ended, range(COUNT))) < COUNT:
            engine.check()
            assert not engine.status().error
        desk.wait(COUNT)
        engine.check()
        assert engine.status().pages_used == engine.status().host_pages_used == 0
        return desk.texts(), engine.status().preemptions


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "memory"), LOADS, ids=["discarding", "offloading", "fifo"])
def test_two_processes_write_what_one_writes_and_their_books_balance(rules, memory, scratch):
    texts, preempted = generate(memory, rules, 2, check=True)
    assert texts == generate(memory, rules, 1)[0] and preempted > 0
    assert others() == [] and not list(scratch.iterdir())


@pytest.mark.slow
def test_when_a_process_is_lost_everybody_is_told_and_nobody_is_left(scratch):
    with running(SCARCE, FULL, processes=2) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, force=LIMIT))
        desk.wait_tokens(0, 3)
        (other,) = others()
        other.kill()
        desk.wait(COUNT)
        assert "failed" in {progress.finished for progress in desk.last.values()}
        engine.check()
        assert engine.status().error == "WorkerError: another process of the group has ended: it was killed (signal 9)"
        with pytest.raises(WorkerError, match="another process of the group has ended"):
            engine.submit(submission(99, prompts(1)[0]))
        assert others() == [] and not list(scratch.iterdir())
    with running(SCARCE, FULL, processes=2) as (engine, desk):  # in the same process, once more
        engine.submit(submission(0, prompts(1)[0]))
        desk.wait(1)
        assert desk.last[0].finished in ("stop", "length")


@pytest.mark.slow
def test_the_others_end_with_a_first_one_that_is_killed(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", ALONE], cwd=ROOT, env=environment, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"under way\n"
        family = psutil.Process(first.pid).children(recursive=True)
        assert len(others(first.pid)) == 1
        first.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(family, timeout=120)
    assert not alive and len(gone) == len(family)
    until = time.monotonic() + 60
    while list(tmp_path.glob("pliant-parallel-*")) and time.monotonic() < until:
        time.sleep(0.05)
    assert not list(tmp_path.glob("pliant-parallel-*"))


def test_no_process_at_all_is_refused():
    with pytest.raises(InputError, match="processes is 0, but must be at least 1"):
        Engine(tiny_generator(), SCARCE, FULL, Desk().deliver, processes=0)


def test_several_processes_take_the_first_gpus_and_no_other():
    with pytest.raises(InputError, match=r"device is cuda:1, but must be cpu or cuda \(the first 2 GPUs\)"):
        Engine(tiny_generator(), SCARCE, FULL, Desk().deliver, device="cuda:1", processes=2)
    with pytest.raises(InputError, match=r"processes is 99, but must be at most the . GPUs of this machine"):
        Engine(tiny_generator(), SCARCE, FULL, Desk().deliver, device="cuda", processes=99)
