"""Tensor parallelism: one generator over several processes of a machine, each with a share of every layer and page.

The first process leads. Each call of its engine (`Executor`) goes through a pipe to the others, and all
make it at the same time, kept in step by the sums inside each layer. So the others have no scheduler, no clock and no
requests of their own. They end with the first one, however that ends. Knows no policy.

On a CPU the processes communicate by gloo. On GPUs, one each in torch's order, they would by NCCL; that has never been
run. There a process lost in the middle of an iteration raises no error but leaves the others waiting until the timeout
of tensor_parallel.py, so whoever drives the engine must watch for silence, as the service does. Pipeline stages can be
planned with hardware.py but not run: transformers 5.23 has them, but their forward pass drops the arguments by which
its continuous batching finds the cache.
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

from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from pliant.errors import WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.local import local_engine
from pliant.packing.engine.model import DTYPES, load_generator
from pliant.packing.engine.step import Executor, StepResult
from pliant.packing.engine.swap_space import SwapSpace
from pliant.packing.engine.tensor_parallel import check, init_group, shard
from pliant.packing.scheduling.request import Memory, StepPlan

STORE_FILE = "meeting"  # beside the model; by it the processes find each other
EXIT_SECONDS = 10.0  # that the other processes have to end by themselves
DETECT_SECONDS = 2.0  # within which the operating system reports the end of a process
LOST = "another process of the group has ended"


@dataclass(frozen=True, slots=True)
class _GroupSpec:
    """What every process needs to join. `margin` is the one of `local_engine`."""

    folder: str  # holds the whole model, as transformers saves it
    processes: int
    device: str  # cpu or cuda
    memory: Memory
    sampling: bool
    margin: float | None
    precision: str  # of the model
    grammars: Grammars | None = None

    def join(self, rank: int, model: Any) -> Executor:
        """Join the group and return an engine with this process's share of the whole model."""
        store = FileStore(f"{self.folder}/{STORE_FILE}", self.processes)
        shard(model, init_group(store, rank, self.processes, self.device))
        return local_engine(model, self.memory, self.sampling, self.margin, self.grammars)


class ParallelExecutor:
    """An `Executor` on `processes` processes of which this is the first. Must be closed.

    Pages count as on one device: `memory` may have `processes` times as many as fit beside the weights there. `device`
    is cpu or cuda. Raises `InputError` for a model that cannot be shared, `WorkerError` if a process ends or this one
    is in a group already. Not thread-safe, but bound to no thread. A process has one group at a time.
    """

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        sampling: bool = True,
        margin: float | None = None,
        grammars: Grammars | None = None,
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
        spec = _GroupSpec(self._folder, processes, device, memory, sampling, margin, generator.precision, grammars)
        try:
            model = load_generator(generator)
            _save(model, self._folder)
            self._start(spec)
            self._await_others("loaded the model")
            self._local = spec.join(0, model)
            self._await_others("made its engine")
        except BaseException:
            self._shut_down()
            raise
        _forget_model(self._folder)

    def _start(self, spec: _GroupSpec) -> None:
        context = get_context("spawn")
        for rank in range(1, spec.processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run_follower, args=(rank, spec, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def _await_others(self, what: str) -> None:
        """Wait until every other process has come as far. Raises `WorkerError` if one fails. `what` it was to do."""
        for pipe in self._pipes:
            try:
                failure = pipe.recv()
            except (EOFError, OSError):
                failure = f"it ended before it had {what}"
            if failure:
                raise WorkerError(f"another process of the group failed: {failure}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the other processes. What runs is lost; counts can still be read. Does nothing the second time."""
        self._shut_down()
        self._local.close()

    @property
    def others(self) -> tuple[int, ...]:
        """The process ids of the other processes."""
        return tuple(process.pid or 0 for process in self._processes)

    @property
    def scheduling(self) -> float:
        return self._local.scheduling

    @property
    def shares(self) -> bool:
        return self._local.shares

    @property
    def running(self) -> int:
        return self._local.running

    @property
    def pages_used(self) -> int:
        return self._local.pages_used

    @property
    def swap_space(self) -> SwapSpace:
        """This process's share; each process uses as many pages."""
        return self._local.swap_space

    def pages_of(self, id: int) -> int:
        return self._local.pages_of(id)

    def check(self) -> None:
        self._local.check()

    def enter(self, threads: int) -> None:
        """Prepare every process to run with `threads` threads."""
        self._broadcast("enter", threads)
        self._local.enter(threads)

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None:
        arguments = id, tuple(ids), limit, tuple(ends), sampling
        self._broadcast("add", *arguments)
        self._local.add(*arguments)

    def cancel(self, id: int) -> None:
        """Remove a sequence, even if the other processes are lost; the next iteration raises for that."""
        with suppress(WorkerError):
            self._broadcast("cancel", id)
        self._local.cancel(id)

    def carry_out(self, plan: StepPlan) -> None:
        self._broadcast("carry_out", plan)
        self._local.carry_out(plan)

    def step(self) -> StepResult:
        self._broadcast("step")
        try:
            return self._local.step()
        except RuntimeError as error:
            failure = self._failure() or f"an iteration over several processes failed: {error}"
            self._shut_down()
            raise WorkerError(failure) from error

    def _broadcast(self, order: str, *arguments: Any) -> None:
        """Send a call to the other processes, without waiting for it. Raises `WorkerError` if one is lost."""
        if not self._processes:
            raise WorkerError(LOST)
        try:
            for pipe in self._pipes:
                pipe.send((order, arguments))
        except OSError as error:
            failure = self._failure() or LOST
            self._shut_down()
            raise WorkerError(failure) from error

    def _failure(self) -> str:
        """Return how another process ended and what it reported; empty if none did."""
        ended = wait([process.sentinel for process in self._processes], DETECT_SECONDS)
        messages = []
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if process.sentinel in ended:
                process.join(DETECT_SECONDS)  # it closes its files before it has a status
            if (process.exitcode or 0) < 0:
                return f"{LOST}: it was killed (signal {-(process.exitcode or 0)})"
            with suppress(EOFError, OSError):
                messages += [f"{LOST}: {pipe.recv()}"] if pipe.poll() else []
        return next(iter(messages), "")

    def _shut_down(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)  # first, since a waiting parent may kill this process
        for pipe in self._pipes:
            pipe.close()
        until = time.monotonic() + EXIT_SECONDS
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
    progress_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
    finally:
        if progress_bar:
            logging.enable_progress_bar()


def _forget_model(folder: str) -> None:
    """Delete the model, which all have loaded. NCCL needs the store again at the first sum, so that file stays."""
    for path in Path(folder).iterdir():
        if path.name != STORE_FILE:
            path.unlink()


def _run_follower(rank: int, spec: _GroupSpec, orders: Connection) -> None:
    """Run another process: report twice how far it is (see `_await_others`), then follow orders to the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process handles it
    threading.Thread(target=_end_with_parent, args=(spec.folder,), daemon=True).start()
    logging.disable_progress_bar()
    try:
        _follow_orders(rank, spec, orders)
    except (EOFError, ConnectionError):  # the first one has closed the pipe
        if distributed.is_initialized():
            distributed.destroy_process_group()
        _leave(spec.folder, 0)
    except Exception as error:  # process boundary: the first one ends the group and raises this
        with suppress(OSError):
            orders.send(f"{type(error).__name__}: {error}")
        _leave(spec.folder, 1)


def _follow_orders(rank: int, spec: _GroupSpec, orders: Connection) -> None:
    options: Any = {"dtype": DTYPES[spec.precision], "attn_implementation": "sdpa"}
    model: Any = AutoModelForCausalLM.from_pretrained(spec.folder, **options)
    orders.send("")
    engine = spec.join(rank, model.eval())
    orders.send("")
    while True:
        order, arguments = orders.recv()
        getattr(engine, order)(*arguments)


def _end_with_parent(folder: str) -> None:
    """End this process with its parent, whatever it waits for: a sum with a lost process may never end."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _leave(folder, 1)


def _leave(folder: str, status: int) -> None:
    """Exit at once and delete the folder, since the first process may be lost. Python's own exit takes longer."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(status)
