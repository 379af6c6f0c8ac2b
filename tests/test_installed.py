"""Installed outside of a checkout Pliant does what its extras promise, beside a user's own `serving` and `flows`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request

import pytest

from pliant.flows.watch.automations import PREFECT
from pliant.serving.launch import Service
from pliant.version import VERSION
from tests.fixtures.bins.published import MlflowPublisher, publish_tiny
from tests.fixtures.clients import PATIENCE, free_port
from tests.fixtures.places import PRESETS
from tests.fixtures.wheels import build, environment, unpack

pytestmark = pytest.mark.slow

STAGES = (
    "from pliant.flows import closure; from pliant.flows.tokens.stages import {0}; print(len(closure.closure({0})))"
)
COMPARE = "import pliant; print(pliant.compare(['otas', 'default'], 'poisson:400:1', 1, {!r}))"
HEAVY = "import sys, pliant; print(sorted({'numpy', 'torch', 'mlflow', 'pydantic'} & sys.modules.keys()))"
PRESET = "from pliant.flows.config import file_of, read_file; print(len(read_file(file_of('bins_cpu'))))"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheels"), "pliant", "pliant-core", "pliant-vllm")


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """Return the Python of an environment of all wheels that has what `pip install pliant` brings, of each extra."""
    made = {}

    def python(root="pliant"):
        if root not in made:
            chosen = wheels[1:2] if root == "pliant-core" else wheels
            made[root] = environment(tmp_path_factory.mktemp("environment"), chosen, root)
        return made[root]

    return python


def run(python, folder, *command, **variables):
    done = start(python, folder, *command, **variables)
    output = done.communicate(timeout=300)
    return subprocess.CompletedProcess(command, done.returncode, *output)


def start(python, folder, *command, **variables):
    """Start it in a folder that has a user's own `serving` and `flows`."""
    for name in ("serving", "flows"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('the folder of the user was imported')")
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([str(python), *command], cwd=folder, env=known, **streams)


def test_no_wheel_overwrites_a_file_of_another_one_and_all_are_typed_and_of_one_version(wheels, tmp_path):
    site = unpack(wheels, tmp_path / "site")
    assert (site / "pliant/py.typed").is_file()
    assert {each.name.partition("-")[2] for each in site.glob("*.dist-info")} == {f"{VERSION}.dist-info"}


def test_the_core_compares_with_numpy_alone_and_says_what_else_it_needs(installed, tmp_path):
    python = installed("pliant-core")
    assert run(python, tmp_path, "-c", HEAVY).stdout == "[]\n"
    assert "default" in run(python, tmp_path, "-c", COMPARE.format("tokens")).stdout
    needed = "needs scipy: `pip install 'pliant-core[sim]'` brings it\n"
    for code in (COMPARE.format("cascade"), "import pliant; pliant.CascadeScheduler"):
        assert run(python, tmp_path, "-c", code).stderr.endswith(needed)
    said = "pliant: the command line is not installed, which this needs: `pip install pliant` brings it\n"
    assert run(python, tmp_path, "-m", "pliant").stderr == said


@pytest.mark.parametrize("words", ["", "train tokens", "serve tokens", "simulate cascade", "bench packing"])
def test_help_needs_no_extra(installed, tmp_path, words):
    done = run(installed(), tmp_path, "-m", "pliant", *words.split(), "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: pliant"), done.stderr


@pytest.mark.parametrize(("words", "extra"), [("train tokens", "all"), ("status", "serve"), ("simulate bins", "serve")])
def test_a_command_names_the_extra_that_it_needs(installed, tmp_path, words, extra):
    done = run(installed(), tmp_path, "-m", "pliant", *words.split())
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.endswith(f" is not installed, which this needs: `pip install 'pliant[{extra}]'` brings it\n")


def test_the_extra_serve_serves_and_has_neither_prefect_nor_data_sets(installed, tmp_path):
    publish_tiny(MlflowPublisher(tmp_path), "colours")
    python, port = installed("pliant[serve]"), free_port()
    absent = "from importlib.util import find_spec; print([find_spec(name) for name in ('prefect', 'datasets')])"
    assert run(python, tmp_path, "-c", absent).stdout == "[None, None]\n"
    variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    done = run(python, tmp_path, "-m", "pliant", "status", **variables)
    assert done.returncode == 0 and "bins" in done.stdout, done.stderr
    service = start(python, tmp_path, "-m", "pliant", "serve", "bins", "--port", str(port), **variables)
    try:
        Service(service, f"http://127.0.0.1:{port}", None).wait_until_ready(PATIENCE)
        body = {"data": b'{"inputs": "a dog"}', "headers": {"content-type": "application/json"}}
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/predict", **body)) as answer:
            assert "label" in json.dumps(json.load(answer))
    finally:
        service.send_signal(signal.SIGTERM)
        output = service.communicate(timeout=PATIENCE)
    assert service.returncode in (0, 130), output


def test_the_extra_train_finds_presets_and_the_code_of_stages(installed, tmp_path):
    python = installed("pliant[train]")
    assert run(python, tmp_path, "-c", PRESET).stdout.strip() > "0"
    done = run(python, tmp_path, "-m", "pliant", "train", "bins", "--config", "fast")
    presets = ", ".join(sorted(each.stem for each in PRESETS.glob("*.toml")))
    assert done.returncode == 2 and done.stderr.endswith(f"a readable TOML file, or a preset: {presets}\n"), done.stderr
    done = run(python, tmp_path, "-c", STAGES.format("make_task"))
    assert int(done.stdout) > 10, done.stderr
    (copy,) = python.parents[1].glob(f"lib/python*/site-packages/pliant/flows/{PREFECT.name}")
    assert copy.read_bytes() == PREFECT.read_bytes()
