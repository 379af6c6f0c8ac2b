"""The processes that share a model meet by the means of their kind of device."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from transformers import LlamaConfig

from pliant.errors import InputError
from pliant.packing.engine import tensor_parallel
from pliant.packing.engine.tensor_parallel import STYLES, TIMEOUT, check, init_group, shard


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


def llama(**changes: Any) -> str:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    return json.dumps(LlamaConfig(vocab_size=64, num_hidden_layers=1, **sizes | changes).to_dict())


def test_what_can_be_shared_is_taken():
    check(llama(), 2)
    check(llama(num_key_value_heads=4), 4)
    check(llama(num_key_value_heads=None), 4)
    check(llama(num_attention_heads=6, num_key_value_heads=3, hidden_size=48, head_dim=8), 3)


@pytest.mark.parametrize(
    ("changes", "processes", "device", "sentence"),
    [
        ({}, 1, "cpu", "processes is 1, but must be at least 2"),
        ({}, 2, "mps", "device is mps, but must be cpu or cuda (the first 2 GPUs) for 2 processes"),
        ({}, 2, "cuda", "processes is 2, but must be at most the 1 GPUs of this machine"),
        ({}, 5, "cpu", "processes is 5, but must be a divisor of the feed-forward's width, 48"),
        ({}, 4, "cpu", "processes is 4, but must be a divisor of 4 heads, 2 of them with keys of their own"),
        (
            {"num_key_value_heads": 6, "num_attention_heads": 2},
            *(3, "cpu", "processes is 3, but must be a divisor of 2 heads, 6 of them with keys of their own"),
        ),
    ],
)
def test_what_cannot_be_shared_is_refused_in_a_sentence(monkeypatch, changes, processes, device, sentence):
    monkeypatch.setattr(tensor_parallel.torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError) as caught:
        check(llama(**changes), processes, device)
    assert str(caught.value) == sentence


def test_as_many_gpus_as_processes_are_enough(monkeypatch):
    monkeypatch.setattr(tensor_parallel.torch.cuda, "device_count", lambda: 2)
    check(llama(), 2, "cuda")


def test_a_plan_of_unknown_styles_is_refused_by_their_names(monkeypatch):
    plan = {"a": "rowwise", "b": "moe", "c": "grouped", "d": "moe"}
    model = SimpleNamespace(num_attention_heads=4, base_model_tp_plan=plan, model_type="odd")
    config = SimpleNamespace(get_text_config=lambda: model)
    monkeypatch.setattr(tensor_parallel.AutoConfig, "for_model", lambda **fields: config)
    with pytest.raises(InputError) as caught:
        check("{}", 2)
    assert str(caught.value) == "processes is 2, but must be 1: transformers shares this model by grouped, moe"
    model.base_model_tp_plan = None
    with pytest.raises(
        InputError, match=r"^processes is 2, but must be 1: transformers shares this model by no plan for odd$"
    ):
        check("{}", 2)
    letters = {f"layers.*.self_attn.{letter}_proj": "colwise" for letter in "qkv"}
    for missing in letters:
        model.base_model_tp_plan = {**letters, missing: "rowwise"}
        with pytest.raises(InputError, match=r"must be 1: transformers' plan for odd shares no attention heads$"):
            check("{}", 2)
    model.base_model_tp_plan = letters
    check("{}", 4)  # without a width of the feed-forward, and with keys for each head


def test_each_style_of_a_plan_is_torchs_own_and_the_head_gathers_the_vocabulary(monkeypatch):
    done = []
    monkeypatch.setattr(tensor_parallel, "parallelize_module", lambda *given: done.append(given))
    plan = {f"layer {at}": word for at, word in enumerate(STYLES)}
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(base_model_tp_plan=plan))
    moved: list[str] = []
    model = SimpleNamespace(config=config, base_model="base", to=moved.append)
    mesh: Any = SimpleNamespace(device_type="cuda")
    shard(model, mesh)
    (base, base_mesh, styles), (whole, whole_mesh, head) = done
    assert (base, base_mesh, whole, whole_mesh) == ("base", mesh, model, mesh)
    kinds = [(name, type(style), style.input_layouts, style.output_layouts) for name, style in styles.items()]
    columns, rows = ColwiseParallel(), RowwiseParallel()
    gathered, split = ColwiseParallel(output_layouts=Replicate()), RowwiseParallel(input_layouts=Replicate())
    assert kinds == [
        (f"layer {at}", type(style), style.input_layouts, style.output_layouts)
        for at, style in enumerate((columns, rows, gathered, split))
    ]
    assert head.keys() == {"lm_head"} and head["lm_head"].output_layouts == gathered.output_layouts
    assert model._device_mesh is mesh and moved == ["cuda"]


def test_a_loopback_that_is_set_or_missing_is_left_alone(monkeypatch):
    monkeypatch.setattr(tensor_parallel.distributed, "init_process_group", lambda *args, **named: None)
    monkeypatch.setattr(tensor_parallel, "init_device_mesh", lambda *args, **named: None)
    for names, before, after in (
        ([(1, "lo0"), (2, "lo1")], None, "lo0"),
        ([(1, "lo")], "eth7", "eth7"),
        ([(1, "eth0")], None, None),
    ):
        environment = {} if before is None else {"GLOO_SOCKET_IFNAME": before}
        monkeypatch.setattr(tensor_parallel.os, "environ", environment)
        monkeypatch.setattr(tensor_parallel.socket, "if_nameindex", lambda names=names: names)
        init_group("store", 0, 2, "cpu")
        assert environment.get("GLOO_SOCKET_IFNAME") == after and environment["NCCL_GRAPH_MIXING_SUPPORT"] == "0"
    assert TIMEOUT.total_seconds() == 300
