"""A generator's layers divided among the processes of a group, by transformers' plan for the model, carried out by torch.

Knows which models can be shared so, how the processes meet (gloo on CPU, NCCL on GPUs), and which part each keeps. Knows
nothing of who starts them, of engines or of orders. transformers' own loading by shares needs the package accelerate; so
each process has all of the model in main memory until it is divided.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from transformers import AutoConfig

from pliant.errors import InputError

TIMEOUT = timedelta(minutes=5)  # of one exchange, until all have loaded too; who is idle waits at its pipe
DEVICES = ("cpu", "cuda")
ATTENTION = tuple(f"layers.*.self_attn.{letter}_proj" for letter in "qkv")
"""Whose division by columns divides the heads, and with them the cache: the engine asks for the same names."""
STYLES: Mapping[str, ParallelStyle | None] = {
    "colwise": ColwiseParallel(),
    "rowwise": RowwiseParallel(),
    "colwise_gather_output": ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": RowwiseParallel(input_layouts=Replicate()),
    "replicated_with_grad_allreduce": None,
    "embedding_rowwise": None,  # 5.17 names it, 5.23 adds it by itself; small beside the layers
}
"""torch's for the words of transformers' plans; None: every process has all of it."""


def check(config: str, processes: int, device: str = "cpu") -> None:
    """Raises `InputError` where a model (its config.json) cannot be shared among so many, or this machine lacks the GPUs."""
    if processes < 2:
        raise InputError("processes", processes, "at least 2")
    if device not in DEVICES:
        raise InputError(
            "device", device, f"{' or '.join(DEVICES)} (the first {processes} GPUs) for {processes} processes"
        )
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise InputError("processes", processes, f"at most the {torch.cuda.device_count()} GPUs of this machine")
    told: Any = AutoConfig.for_model(**json.loads(config)).get_text_config()
    heads, keys = told.num_attention_heads, getattr(told, "num_key_value_heads", None) or told.num_attention_heads
    plan = getattr(told, "base_model_tp_plan", None) or {"": f"no plan for {told.model_type}"}
    if unknown := sorted(set(plan.values()) - STYLES.keys()):
        raise InputError("processes", processes, f"1: transformers shares this model by {', '.join(unknown)}")
    if any(plan.get(name) != "colwise" for name in ATTENTION):
        raise InputError(
            "processes", processes, f"1: transformers' plan for {told.model_type} shares no attention heads"
        )
    if (width := getattr(told, "intermediate_size", None) or 0) % processes:
        raise InputError("processes", processes, f"a divisor of the feed-forward's width, {width}")
    if heads % processes or keys % processes:
        raise InputError("processes", processes, f"a divisor of {heads} heads, {keys} of them with keys of their own")


def init_group(store: Any, rank: int, processes: int, device: str) -> DeviceMesh:
    """Wait for the others and be one of the group: on GPUs the one that holds the GPU of its rank."""
    # Gloo would else listen on whatever address the machine's name stands for.
    inside = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if inside is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", inside)
    os.environ.setdefault("NCCL_GRAPH_MIXING_SUPPORT", "0")  # as transformers' engine asks for
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    backend = "nccl" if on_gpu else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=processes, timeout=TIMEOUT)
    return init_device_mesh(device, (processes,), mesh_dim_names=("tp",))


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Keep this process's part of a whole model, on its device. Every process of the group calls this."""
    told = model.config.get_text_config().base_model_tp_plan
    plan = {name: style for name, word in told.items() if (style := STYLES[word]) is not None}
    parallelize_module(model.base_model, mesh, plan)
    parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())})
    model._device_mesh = mesh  # by which the engine knows that its cache holds a part of the heads
    model.to(mesh.device_type)
