"""A generator too large for one device, over several processes of one machine: each has its share of every layer and of
every page of the cache (tensor parallelism), by transformers' plan for the model, carried out by torch.

The first process decides: whatever it tells its engine (`Batching`) goes through a pipe to the others, and all do the same
at the same time, kept in step by the sums inside each layer. So the others have no scheduler, no clock and no requests of
their own. Knows no policy.

On CPU the processes talk over gloo. On GPUs, one a process in the order in which torch counts them, they would over NCCL:
that has not been run. Stages of a pipeline are planned for (hardware.py) and not run: transformers 5.23 has them, but their
forward pass drops the arguments by which its continuous batching finds the cache. transformers' own loading by shares needs
the package accelerate; so torch divides the model here, and until then each process holds all of it in main memory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from pliant.errors import InputError, WorkerError
from pliant.packing import sampling as warps
from pliant.packing.adapter import Batching, Step
from pliant.packing.artifact import Generator
from pliant.packing.model import load_generator
from pliant.packing.request import Decision, Memory
from pliant.packing.staging import Host

MEETING = "meeting"  # the file beside the model by which the processes find each other
TIMEOUT = timedelta(minutes=5)  # of one exchange, until all have loaded too; who is idle waits at its pipe
LEAVING = 10.0  # seconds that a process has to end by itself
STYLES: Mapping[str, ParallelStyle | None] = {
    "colwise": ColwiseParallel(),
    "rowwise": RowwiseParallel(),
    "colwise_gather_output": ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": RowwiseParallel(input_layouts=Replicate()),
    "replicated_with_grad_allreduce": None,
    "embedding_rowwise": None,  # 5.17 names it, 5.23 adds it by itself; small beside the layers
}
"""torch's for the words of transformers' plans; None: every process has all of it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What every process is told. `margin` as `Batching` has it."""

    folder: str  # with the whole model, as transformers saves it
    processes: int
    memory: Memory
    sampling: bool
    margin: float | None

    def join(self, rank: int, model: Any) -> Batching:
        """Become one of the group; the engine around this process's part of the whole model."""
        divide(model, _enter(FileStore(f"{self.folder}/{MEETING}", self.processes), rank, self.processes))
        vocabulary = int(model.config.get_text_config().vocab_size)
        return Batching(model, self.memory, warps.processors(vocabulary) if self.sampling else (), self.margin)


class Parallel:
    """Takes `Batching`'s place, over so many processes, this one being the first. To be closed.

    Pages count as on one device: `memory` may have `processes` times as many as fit beside the weights there. Raises
    `InputError` for a model that cannot be shared so, `WorkerError` where a process ends or this one is in a group already.
    Not thread-safe; one group a process at a time.
    """

    def __init__(
        self,
        generator: Generator,
        memory: Memory,
        sampling: bool = True,
        margin: float | None = None,
        *,
        processes: int,
    ) -> None:
        check(generator, processes)
        if distributed.is_initialized():
            raise WorkerError("this process is in a group of processes already")
        self._folder = tempfile.mkdtemp(prefix="pliant-parallel-")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        try:
            model = load_generator(generator)
            model.save_pretrained(self._folder)
            part = _Part(self._folder, processes, memory, sampling, margin)
            self._start(part)
            self._own = part.join(0, model)
        except BaseException:
            self._end()
            raise

    def _start(self, part: _Part) -> None:
        context = get_context("spawn")
        for rank in range(1, part.processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_follow, args=(rank, part, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

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
    def host(self) -> Host:
        """This process's part; as many pages are in use in each."""
        return self._own.host

    def held(self, id: int) -> int:
        return self._own.held(id)

    def check(self) -> None:
        self._own.check()

    def enter(self, threads: int) -> None:
        self._all("enter", threads)
        self._own.enter(threads)

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None:
        told = id, tuple(ids), limit, tuple(ends), sampling
        self._all("add", *told)
        self._own.add(*told)

    def cancel(self, id: int) -> None:
        """Also where the others are gone: the books are closed after a failure too."""
        if self._processes:
            self._all("cancel", id)
        self._own.cancel(id)

    def carry_out(self, decision: Decision) -> None:
        self._all("carry_out", decision)
        self._own.carry_out(decision)

    def step(self) -> Step:
        self._all("step")
        try:
            return self._own.step()
        except RuntimeError as error:
            self._end()
            raise WorkerError(f"an iteration over several processes failed: {error}") from error

    def _all(self, order: str, *told: Any) -> None:
        """Does not wait until it is done."""
        try:
            for pipe in self._pipes:
                pipe.send((order, told))
        except OSError:
            self._end()
        if not self._processes:
            raise WorkerError("another process of the group has ended")

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(LEAVING)
            if process.is_alive():
                process.kill()
                process.join()
        self._pipes, self._processes = [], []
        if distributed.is_initialized():
            distributed.destroy_process_group()
        shutil.rmtree(self._folder, ignore_errors=True)


def check(generator: Generator, processes: int) -> None:
    """Raises `InputError` where the model cannot be shared among so many."""
    told: Any = AutoConfig.for_model(**json.loads(generator.config)).get_text_config()
    heads, keys = told.num_attention_heads, getattr(told, "num_key_value_heads", None) or told.num_attention_heads
    styles = set((getattr(told, "base_model_tp_plan", None) or {"": f"no plan for {told.model_type}"}).values())
    if processes < 2:
        raise InputError("processes", processes, "at least 2")
    if 0 < torch.cuda.device_count() < processes:
        raise InputError("processes", processes, f"at most the {torch.cuda.device_count()} GPUs of this machine")
    if unknown := sorted(styles - STYLES.keys()):
        raise InputError("processes", processes, f"1: transformers shares this model by {', '.join(unknown)}")
    if heads % processes or keys % processes:
        raise InputError("processes", processes, f"a divisor of {heads} heads, {keys} of them with keys of their own")


def divide(model: Any, mesh: DeviceMesh) -> None:
    """Keep this process's part of a whole model, on its device. Every process of the group calls this."""
    told = model.config.get_text_config().base_model_tp_plan
    plan = {name: style for name, word in told.items() if (style := STYLES[word]) is not None}
    parallelize_module(model.base_model, mesh, plan)
    parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())})
    model._device_mesh = mesh  # by which the engine knows that its cache holds a part of the heads
    model.to(mesh.device_type)


def _enter(store: Any, rank: int, processes: int) -> DeviceMesh:
    """Gloo would else listen on whatever address the machine's name stands for."""
    inside = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if inside is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", inside)
    os.environ.setdefault("NCCL_GRAPH_MIXING_SUPPORT", "0")  # as transformers' engine asks for
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    backend = "nccl" if on_gpu else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=processes, timeout=TIMEOUT)
    return init_device_mesh("cuda" if on_gpu else "cpu", (processes,), mesh_dim_names=("tp",))


def _follow(rank: int, part: _Part, orders: Connection) -> None:
    """Another process: does what it is told until the pipe is closed, by the first one or with its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first one's to handle
    logging.disable_progress_bar()
    told: Any = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model: Any = AutoModelForCausalLM.from_pretrained(part.folder, **told)
    batching = part.join(rank, model.eval())
    while True:
        try:
            order, arguments = orders.recv()
        except EOFError:
            break
        getattr(batching, order)(*arguments)
    distributed.destroy_process_group()
