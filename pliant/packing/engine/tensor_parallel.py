"""Shards a generator's layers over the processes of a group, by transformers' plan for the model and with torch.

Knows which models can be sharded, how the processes form a group (gloo on a CPU, NCCL on GPUs), and which part each
keeps. Knows nothing of engines. Transformers' own sharded loading needs the package accelerate, so each process holds
the whole model in main memory until it is sharded.
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

TIMEOUT = timedelta(minutes=5)  # of one exchange between processes, and for all to load; idle ones wait at their pipes
DEVICES = ("cpu", "cuda")
ATTENTION = tuple(f"layers.*.self_attn.{letter}_proj" for letter in "qkv")
"""The layers whose columns are the heads. Sharding them shards the cache, and the engine looks for these names."""
STYLES: Mapping[str, ParallelStyle | None] = {
    "colwise": ColwiseParallel(),
    "rowwise": RowwiseParallel(),
    "colwise_gather_output": ColwiseParallel(output_layouts=Replicate()),
    "rowwise_split_input": RowwiseParallel(input_layouts=Replicate()),
    "replicated_with_grad_allreduce": None,
    "embedding_rowwise": None,  # 5.17 lists it, 5.23 adds it by itself; small beside the layers
}
"""Style in a plan of transformers -> torch's style; None: every process keeps the whole layer."""


def check(config: str, processes: int, device: str = "cpu") -> None:
    """Raises `InputError` if `processes` cannot share a model (its config.json), or the machine lacks GPUs."""
    if processes < 2:
        raise InputError("processes", processes, "at least 2")
    if device not in DEVICES:
        raise InputError(
            "device", device, f"{' or '.join(DEVICES)} (the first {processes} GPUs) for {processes} processes"
        )
    if device == "cuda" and torch.cuda.device_count() < processes:
        raise InputError("processes", processes, f"at most the {torch.cuda.device_count()} GPUs of this machine")
    model: Any = AutoConfig.for_model(**json.loads(config)).get_text_config()
    heads = model.num_attention_heads
    key_heads = getattr(model, "num_key_value_heads", None) or heads
    plan = getattr(model, "base_model_tp_plan", None) or {"": f"no plan for {model.model_type}"}
    if unknown := sorted(set(plan.values()) - STYLES.keys()):
        raise InputError("processes", processes, f"1: transformers shares this model by {', '.join(unknown)}")
    if any(plan.get(name) != "colwise" for name in ATTENTION):
        raise InputError(
            "processes", processes, f"1: transformers' plan for {model.model_type} shares no attention heads"
        )
    if (width := getattr(model, "intermediate_size", None) or 0) % processes:
        raise InputError("processes", processes, f"a divisor of the feed-forward's width, {width}")
    if heads % processes or key_heads % processes:
        raise InputError(
            "processes", processes, f"a divisor of {heads} heads, {key_heads} of them with keys of their own"
        )


def init_group(store: Any, rank: int, processes: int, device: str) -> DeviceMesh:
    """Join the group, after waiting for the other processes. On GPUs each process has the GPU of its rank."""
    # Otherwise gloo listens on whatever address the machine's name has.
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("NCCL_GRAPH_MIXING_SUPPORT", "0")  # as transformers' engine asks for
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.set_device(rank)
    backend = "nccl" if on_gpu else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=processes, timeout=TIMEOUT)
    return init_device_mesh(device, (processes,), mesh_dim_names=("tp",))


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Reduce a whole model to this process's part, on its device. Every process of the group must call this."""
    words = model.config.get_text_config().base_model_tp_plan
    plan = {name: style for name, word in words.items() if (style := STYLES[word]) is not None}
    parallelize_module(model.base_model, mesh, plan)
    parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())})
    model._device_mesh = mesh  # tells the engine that its cache holds a part of the heads
    model.to(mesh.device_type)
