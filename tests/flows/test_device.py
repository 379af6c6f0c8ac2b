"""What the device cannot do is told before anything is trained."""

from types import SimpleNamespace

import pytest
import torch

from pliant.errors import DeviceError, InputError
from pliant.flows.bins import reprofile as bins_reprofile
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.bins.flow import bins
from pliant.flows.cascade import reprofile as cascade_reprofile
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.cascade.flow import cascade
from pliant.flows.packing import reprofile as packing_reprofile
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.flow import packing
from pliant.flows.reprofile import check_replaces
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.flow import tokens
from pliant.progress import silent


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_missing_device_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="device is cuda"):
        tokens.fn(None, {"device": "cuda"})
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("flow", "overrides", "field"),
    [
        (tokens, {"task": {"precision": "bfloat16"}}, "task.precision"),
        (tokens, {"foundation": {"precision": "bfloat16"}}, "foundation.precision"),
        (bins, {"embedded": {"classifier": {"precision": "bfloat16"}}}, "embedded.classifier.precision"),
        (cascade, {"levels": [{"name": "a"}, {"name": "b", "classifier": {"precision": "bfloat16"}}]}, r"levels\[1\]."),
        (packing, {"embedded": {"precision": "bfloat16"}}, "embedded.precision"),
    ],
)
def test_bfloat16_without_instructions_is_refused_before_training(tmp_path, monkeypatch, flow, overrides, field):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match=f"{field}.* is bfloat16, but must be float32 here"):
        flow.fn(None, overrides)
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("kind", [TokensFlowConfig, BinsFlowConfig, CascadeFlowConfig, PackingFlowConfig])
@pytest.mark.parametrize(("gpu", "taken"), [(True, "cuda"), (False, "cpu")])
def test_a_flow_without_a_device_takes_the_gpu_where_there_is_one(monkeypatch, kind, gpu, taken):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert (kind().device, kind(device="cuda:3").device) == (taken, "cuda:3")


def test_a_profile_of_another_class_replaces_the_champion_only_where_it_may():
    check_replaces("digits", "a GPU", "a GPU", allowed=False)
    check_replaces("digits", "cpu-x86_64-1t", "a GPU", allowed=True)
    with pytest.raises(DeviceError, match=r"digits was measured on a GPU, and this .*-1t: .*--other-device"):
        check_replaces("digits", "cpu-x86_64-1t", "a GPU", allowed=False)


DEVICES = {bins_reprofile: "device_class", cascade_reprofile: "device", packing_reprofile: "device_class"}


@pytest.mark.parametrize("system", list(DEVICES), ids=lambda system: system.__name__)
def test_what_a_cpu_measures_never_takes_the_place_of_a_gpus_champion(tmp_path, monkeypatch, system):
    """It is refused before anything is measured or looked up: the champion here has nothing but its class."""
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    champion = SimpleNamespace(artifact=SimpleNamespace(**{DEVICES[system]: "a GPU"}))
    monkeypatch.setattr(system, "load_champions", lambda *_: {"things": champion})
    with pytest.raises(DeviceError, match="the champion of things was measured on a GPU, and this device is cpu-"):
        system.reprofile("cpu", 1, silent)
