"""A generator too large for one device, over several processes of one machine: each has its share of every layer and
of every page of the cache (tensor parallelism).

The first process decides: whatever it tells its engine (`ContinuousBatchingEngine`) goes through a pipe to the
others, and all do the same at the same time, kept in step by the sums inside each layer. So the others have no
scheduler, no clock and no requests of their own. They end with the first one, however that ends. Knows no policy.

On CPU the processes talk over gloo. On GPUs, one a process in the order in which torch counts them, they would over
NCCL: that has not been run. There the loss of a process in the middle of an iteration is a silence (until
tensor_parallel.py's timeout), not an error: who drives the engine must watch for it, as the service does. Stages of a
pipeline are planned for (hardware.py) and not run: transformers 5.23 has them, but their forward pass drops the
arguments by which its continuous batching finds the cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from pliant.errors import WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine import sampling as warps
from pliant.packing.engine.adapter import ContinuousBatchingEngine, Step
from pliant.packing.engine.model import load_generator, vocabulary
from pliant.packing.engine.swap_space import SwapSpace
from pliant.packing.engine.tensor_parallel import check, init_group, shard
from pliant.packing.scheduling.request import Memory, StepPlan

MEETING = "meeting"  # the file beside the model by which the processes find each other
LEAVING = 10.0  # seconds that the others have to end by themselves
SETTLING = 2.0  # seconds in which the system tells of a process that is gone
GONE = "another process of the group has ended"


@dataclass(frozen=True, slots=True)
class _Part:
    """What every process is told. `margin` as `ContinuousBatchingEngine` has it."""

    folder: str  # with the whole model, as transformers saves it
    processes: int
    device: str  # cpu or cuda
    vocabulary: int
    memory: Memory
    sampling: bool
    margin: float | None

    def join(self, rank: int, model: Any) -> ContinuousBatchingEngine:
        """Become one of the group; the engine around this process's part of the whole model."""
        store = FileStore(f"{self.folder}/{MEETING}", self.processes)
        shard(model, init_group(store, rank, self.processes, self.device))
        return ContinuousBatchingEngine(
            model, self.memory, warps.processors(self.vocabulary) if self.sampling else (), self.margin
        )


class Parallel:
    """Takes `ContinuousBatchingEngine`'s place, over so many processes, this one being the first. To be closed.

    Pages count as on one device: `memory` may have `processes` times as many as fit beside the weights there. `device` is
    cpu or cuda. Raises `InputError` for a model that cannot be shared so, `WorkerError` where a process ends or this one is
    in a group already. Not thread-safe, but bound to no thread; one group a process at a time.
    """

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        sampling: bool = True,
        margin: float | None = None,
        *,
        processes: int,
        device: str = "cpu",
    ) -> None:
        check(generator.config, processes, device)
        if distributed.is_initialized():
            raise WorkerError("this process is in a group of processes already")
        self._folder = tempfile.mkdtemp(prefix="pliant-parallel-")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        part = _Part(self._folder, processes, device, vocabulary(generator), memory, sampling, margin)
        try:
            model = load_generator(generator)
            _save(model, self._folder)
            self._start(part)
            self._hear("loaded the model")
            self._own = part.join(0, model)
            self._hear("made its engine")
        except BaseException:
            self._end()
            raise
        _forget_model(self._folder)

    def _start(self, part: _Part) -> None:
        context = get_context("spawn")
        for rank in range(1, part.processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_follow, args=(rank, part, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def _hear(self, what: str) -> None:
        """Wait until every other process is as far. Raises `WorkerError`."""
        for pipe in self._pipes:
            try:
                fault = pipe.recv()
            except (EOFError, OSError):
                fault = f"it ended before it had {what}"
            if fault:
                raise WorkerError(f"another process of the group failed: {fault}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the other processes; whatever runs is lost, the books stay. Harmless where that was done already."""
        self._end()
        self._own.close()

    @property
    def others(self) -> tuple[int, ...]:
        """The other processes' ids."""
        return tuple(process.pid or 0 for process in self._processes)

    @property
    def scheduling(self) -> float:
        return self._own.scheduling

    @property
    def running(self) -> int:
        return self._own.running

    @property
    def pages_used(self) -> int:
        return self._own.pages_used

    @property
    def swap_space(self) -> SwapSpace:
        """This process's part; as many pages are in use in each."""
        return self._own.swap_space

    def held(self, id: int) -> int:
        return self._own.held(id)

    def check(self) -> None:
        self._own.check()

    def enter(self, threads: int) -> None:
        """In each of the processes so many threads."""
        self._all("enter", threads)
        self._own.enter(threads)

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None:
        told = id, tuple(ids), limit, tuple(ends), sampling
        self._all("add", *told)
        self._own.add(*told)

    def cancel(self, id: int) -> None:
        """Also where the others are gone: the books are closed after a failure too. The next iteration tells of it."""
        with suppress(WorkerError):
            self._all("cancel", id)
        self._own.cancel(id)

    def carry_out(self, decision: StepPlan) -> None:
        self._all("carry_out", decision)
        self._own.carry_out(decision)

    def step(self) -> Step:
        self._all("step")
        try:
            return self._own.step()
        except RuntimeError as error:
            fault = self._fault() or f"an iteration over several processes failed: {error}"
            self._end()
            raise WorkerError(fault) from error

    def _all(self, order: str, *told: Any) -> None:
        """Does not wait until it is done."""
        if not self._processes:
            raise WorkerError(GONE)
        try:
            for pipe in self._pipes:
                pipe.send((order, told))
        except OSError as error:
            fault = self._fault() or GONE
            self._end()
            raise WorkerError(fault) from error

    def _fault(self) -> str:
        """Who is gone, and what it said before; empty where nobody is."""
        gone = wait([process.sentinel for process in self._processes], SETTLING)
        said = []
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if process.sentinel in gone:
                process.join(SETTLING)  # its files are closed before it has a status
            if (process.exitcode or 0) < 0:
                return f"{GONE}: it was killed (signal {-(process.exitcode or 0)})"
            with suppress(EOFError, OSError):
                said += [f"{GONE}: {pipe.recv()}"] if pipe.poll() else []
        return next(iter(said), "")

    def _end(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)  # at once: who waits for us may lose patience
        for pipe in self._pipes:
            pipe.close()
        until = time.monotonic() + LEAVING
        for process in self._processes:
            process.join(max(until - time.monotonic(), 0.0))
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []
        if distributed.is_initialized():
            distributed.destroy_process_group()
        shutil.rmtree(self._folder, ignore_errors=True)


def _save(model: Any, folder: str) -> None:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()


def _forget_model(folder: str) -> None:
    """All have loaded it, and it may be large. NCCL meets again at the first sum, so that file stays."""
    for path in Path(folder).iterdir():
        if path.name != MEETING:
            path.unlink()


def _follow(rank: int, part: _Part, orders: Connection) -> None:
    """Another process: says twice how it got on (see `_hear`), then does what it is told until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first one's to handle; SIGTERM too where it ignores that
    threading.Thread(target=_end_with_parent, args=(part.folder,), daemon=True).start()
    logging.disable_progress_bar()
    try:
        _obey(rank, part, orders)
    except (EOFError, ConnectionError):  # the first one has closed the pipe
        if distributed.is_initialized():
            distributed.destroy_process_group()
        _leave(part.folder, 0)
    except Exception as error:  # the boundary: the first one ends the group and says why
        with suppress(OSError):
            orders.send(f"{type(error).__name__}: {error}")
        _leave(part.folder, 1)


def _obey(rank: int, part: _Part, orders: Connection) -> None:
    told: Any = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model: Any = AutoModelForCausalLM.from_pretrained(part.folder, **told)
    orders.send("")
    batching = part.join(rank, model.eval())
    orders.send("")
    while True:
        order, arguments = orders.recv()
        getattr(batching, order)(*arguments)


def _end_with_parent(folder: str) -> None:
    """Whatever this process waits for: a sum with one that is gone may take for ever."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _leave(folder, 1)


def _leave(folder: str, status: int) -> None:
    """At once: Python's own end takes its time. The folder is of no use any more, and the first one may be gone."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(status)
