"""The processes that share a model meet by the means of their kind of device."""

from __future__ import annotations

import os

import pytest

from pliant.packing.engine import tensor_parallel
from pliant.packing.engine.tensor_parallel import TIMEOUT, init_group


@pytest.mark.parametrize(("device", "backend", "gpus"), [("cpu", "gloo", []), ("cuda", "nccl", [1])])
def test_gpus_meet_by_nccl_with_one_each_and_processors_by_gloo_on_loopback(device, backend, gpus, monkeypatch):
    chosen, groups = [], []
    monkeypatch.setattr(tensor_parallel.torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(
        tensor_parallel.distributed, "init_process_group", lambda *args, **named: groups.append((args, named))
    )
    monkeypatch.setattr(tensor_parallel, "init_device_mesh", lambda *args, mesh_dim_names: (args, mesh_dim_names))
    monkeypatch.setattr(tensor_parallel.os, "environ", {**os.environ})
    monkeypatch.setattr(tensor_parallel.socket, "if_nameindex", lambda: [(1, "eth0"), (2, "lo")])
    tensor_parallel.os.environ.pop("GLOO_SOCKET_IFNAME", None)
    assert init_group("store", 1, 2, device) == ((device, (2,)), ("tp",))
    assert groups == [((backend,), {"store": "store", "rank": 1, "world_size": 2, "timeout": TIMEOUT})]
    assert chosen == gpus
    assert tensor_parallel.os.environ["GLOO_SOCKET_IFNAME"] == "lo"
