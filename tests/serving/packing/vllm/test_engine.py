"""What an environment of vLLM says of itself, and with which variables its Python is started."""

from __future__ import annotations

import json
import os

import pytest

from pliant.errors import PliantError
from serving.packing.vllm import engine
from serving.packing.vllm.engine import Engine

ENGINE = Engine("cpu", engine.digest("cpu"), "3.11.7", "0.1.0", {"vllm": "0.32.0+cpu"}, 12.5)


@pytest.fixture
def environment(tmp_path):
    """A whole environment in the home `tmp_path`."""
    place = engine.folder(tmp_path)
    packages = place / "lib" / "python3.11" / "site-packages"
    (packages / "pliant").mkdir(parents=True)
    (packages / "pliant" / "__init__.py").touch()
    (place / "bin").mkdir()
    python = engine.interpreter(place)
    python.touch()
    python.chmod(0o755)
    engine.write(place, ENGINE)
    return place


def test_what_is_written_is_read(environment, tmp_path):
    assert engine.read(environment) == ENGINE
    assert engine.missing(tmp_path) == ""
    assert engine.python_of(tmp_path) == environment / "bin" / "python"
    assert engine.device_of(tmp_path) == "cpu"


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"device": "tpu"}, {"more": 1}, {"digest": ...}, None], ids=lambda change: str(change)
)
def test_a_description_of_another_form_is_none(environment, tmp_path, change):
    document = json.loads((environment / "engine.json").read_text()) | (change or {})
    document = {name: value for name, value in document.items() if value is not ...}
    (environment / "engine.json").write_text(json.dumps(document if change else [document]))
    assert engine.read(environment) is None
    sentence = f"vLLM is not installed in {environment}; install it with: pliant engine install vllm"
    assert engine.missing(tmp_path) == sentence
    with pytest.raises(PliantError, match="install it with: pliant engine install vllm"):
        engine.device_of(tmp_path)


@pytest.mark.parametrize("gone", ["bin/python", "lib/python3.11/site-packages/pliant/__init__.py"])
def test_an_environment_without_its_python_or_our_package_is_broken(environment, tmp_path, gone):
    (environment / gone).unlink()
    with pytest.raises(PliantError, match="is broken; install it with: pliant engine install vllm --device cpu"):
        engine.python_of(tmp_path)


def test_the_digest_knows_the_device_the_pins_and_what_is_left_out(monkeypatch, tmp_path):
    digests = {engine.digest("cpu"), engine.digest("cuda")}
    changed = tmp_path / "left_out.txt"
    changed.write_text("")
    monkeypatch.setattr(engine, "LEFT_OUT", changed)
    digests.add(engine.digest("cpu"))
    changed.write_text("torchvision\n")
    monkeypatch.setattr(engine, "pins", lambda device: changed)
    digests.add(engine.digest("cpu"))
    assert len(digests) == 4


@pytest.mark.parametrize("device", engine.DEVICES)
def test_pins_are_exact_name_the_engine_and_leave_out_what_texts_do_not_need(device):
    lines = engine.pins(device).read_text().splitlines()
    names = [line.partition("==")[0] for line in lines]
    assert all("==" in line and "://" not in line for line in lines)
    assert engine.REQUIREMENTS[device] in lines
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(names)
    assert ("torch==2.13.0+cpu" in lines) == (device == "cpu")


def test_the_variables_are_those_of_the_engine_alone(tmp_path):
    base = {
        "PATH": "/usr/bin",
        "PYTHONPATH": "/checkout",
        "PYTHONHOME": "/x",
        "VIRTUAL_ENV": "/venv",
        "HOME": "/home/me",
    }
    values = engine.variables(tmp_path, "cpu", cache_gib=2, base=base)
    assert values["PATH"] == f"{tmp_path / 'bin'}{os.pathsep}/usr/bin"
    assert not {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"} & set(values)
    assert (values["HOME"], values["VLLM_TARGET_DEVICE"], values["VLLM_CPU_KVCACHE_SPACE"]) == ("/home/me", "cpu", "2")
    assert (values["VLLM_NO_USAGE_STATS"], values["VLLM_HOST_IP"]) == ("1", "127.0.0.1")


def test_what_the_user_has_set_for_vllm_stays_and_a_gpu_gets_nothing_of_a_cpu(tmp_path):
    values = engine.variables(tmp_path, "cuda", cache_gib=2, base={"VLLM_HOST_IP": "10.0.0.1"})
    assert values["VLLM_HOST_IP"] == "10.0.0.1" and values["PATH"] == str(tmp_path / "bin")
    assert not {"VLLM_TARGET_DEVICE", "VLLM_CPU_KVCACHE_SPACE"} & set(values)
    assert "VLLM_CPU_KVCACHE_SPACE" not in engine.variables(tmp_path, "cpu", base={})


def test_the_variables_of_an_installed_engine_are_for_its_device(environment, tmp_path):
    assert engine.environment_of(tmp_path, 1, {}) == engine.variables(environment, "cpu", 1, {})


def test_damage_names_the_first_file_that_is_not_as_it_was(environment):
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / "a-1.dist-info").mkdir()
    (packages / "a.py").write_text("12345")
    (packages / "a-1.dist-info" / "RECORD").write_text('a.py,sha256=x,5\n"b, c.py",sha256=x,0\nno.pyc,,\n')
    assert engine.damage(environment) == "b, c.py"
    (packages / "b, c.py").touch()
    assert engine.damage(environment) == ""
    (packages / "a.py").write_text("1234")
    assert engine.damage(environment) == "a.py"
