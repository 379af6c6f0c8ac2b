"""Every engine and shape gives what the plain model gives for each text alone, whatever it is padded with."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch._inductor.config as inductor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.cache import VERSIONS, store
from pliant.bins.runtimes.compile import compile_shapes, package
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.runtime import AotEngine, BinsRuntime
from pliant.errors import ArtifactError, DeviceError, InputError
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(8, 4), Shape(40, 1), Shape(40, 2), Shape(40, 8, dynamic=True))
COMPILED = {"bert": (SHAPES[1],), "modernbert": (SHAPES[3],), "distilbert": (SHAPES[4],)}
"""For AOTInductor, which takes 10 to 60 s a shape in g++: every family and head once, static shapes and a dynamic one.
"""
QUICK = {
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "aot_inductor.precompile_headers": False,
    "cpp_cache_precompile_headers": False,
}
"""Of g++: less work for the code between the kernels, which is compiled once and hardly run."""
TOLERANCE = 2e-5  # of outputs of size 1
HEADS = {
    "classification": {"head": "classification"},
    "mean": {"head": "embedding", "pooling": "mean", "normalize": True},
    "cls": {"head": "embedding", "pooling": "cls", "normalize": False},
}


@dataclass
class Bench:
    """Runtimes of each (engine, family, head), made once per module."""

    folder: Path
    runtimes: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)

    def of(self, engine: str, family: str, head: str) -> tuple[Encoder, BinsRuntime]:
        key = engine, family, head
        if key not in self.runtimes:
            encoder = tiny_encoder(family, **HEADS[head])
            shapes = SHAPES if engine != "aot" else COMPILED[family]
            with inductor.patch(QUICK):
                self.files[key] = compile_shapes(encoder, shapes, engine, self.folder)
            self.runtimes[key] = encoder, BinsRuntime(encoder, shapes, engine, self.folder, self.files[key])
        return self.runtimes[key]


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


def alone(encoder: Encoder, payload) -> np.ndarray:
    """Return the plain module's output for one text, unpadded."""
    model = load_model(encoder)
    ids, types = (torch.from_numpy(array.astype(np.int64))[None] for array in payload)
    token_types = {"token_type_ids": types} if model.typed else {}
    with torch.inference_mode():
        return model(input_ids=ids, **token_types)[0].numpy()


def agree(bench: Bench, key: tuple[str, str, str], numbers: st.DataObject) -> None:
    encoder, runtime = bench.of(*key)
    setting = numbers.draw(st.integers(0, len(runtime.shapes) - 1), "setting")
    shape = runtime.shapes[setting]
    lengths = numbers.draw(st.lists(st.integers(1, shape.length), min_size=1, max_size=shape.batch), "lengths")
    rng = np.random.default_rng(numbers.draw(st.integers(0, 99), "seed"))
    payloads = [random_payload(rng, length) for length in lengths]
    outputs = runtime.run(setting, payloads).outputs
    assert [output.dtype for output in outputs] == [np.float32] * len(payloads)
    for output, payload in zip(outputs, payloads, strict=True):
        expected = alone(encoder, payload)
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))


RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


PAIRS = tuple(zip(FAMILIES, HEADS, strict=True))
EVERY = [
    *(("eager", family, head) for family in FAMILIES for head in HEADS),
    ("onnx", *PAIRS[0]),
    *(pytest.param("onnx", *pair, marks=pytest.mark.slow) for pair in PAIRS[1:]),  # 5 to 10 s to export
    *(pytest.param("aot", family, head, marks=pytest.mark.slow) for family, head in PAIRS),  # 10 to 60 s each in g++
]


@pytest.mark.parametrize(("engine", "family", "head"), EVERY)
@settings(max_examples=20, **RELAXED)
@given(numbers=st.data())
def test_every_shape_answers_as_the_plain_model_for_each_text_alone(bench, engine, family, head, numbers):
    agree(bench, (engine, family, head), numbers)


@pytest.mark.parametrize("engine", ["eager", "onnx"])
def test_padding_never_changes_a_texts_output(bench, engine):
    """The same text alone in the smallest shape, beside longer ones, and in the largest shape."""
    _, runtime = bench.of(engine, *PAIRS[0])
    rng = np.random.default_rng(0)
    text, others = random_payload(rng, 7), [random_payload(rng, n) for n in (8, 1, 5)]
    first = runtime.run(0, [text]).outputs[0]
    for setting, payloads in [
        (1, [text]),
        (1, [text, *others]),
        (2, [text]),
        (3, [text, others[0]]),
        (4, [text, *others]),
    ]:
        np.testing.assert_allclose(runtime.run(setting, payloads).outputs[0], first, atol=TOLERANCE)


@pytest.mark.parametrize("engine", ["eager", "onnx"])
@pytest.mark.parametrize(
    ("setting", "lengths", "message"),
    [
        (0, (9,), "text is 9 tokens long, but must be 1 to 8 for 1 x 8"),
        (1, (8, 8, 8, 8, 8), "payloads is 5 texts, but must be 1 to 4 for 4 x 8"),
        (4, (41,), "text is 41 tokens long, but must be 1 to 40 for at most 8 x 40"),
        (4, (1,) * 9, "payloads is 9 texts, but must be 1 to 8 for at most 8 x 40"),
        (0, (), "payloads is 0 texts"),
        (0, (0,), "text is 0 tokens long"),
        (5, (1,), "setting is 5, but must be 0 to 4"),
        (-1, (1,), "setting is -1"),
    ],
)
def test_what_does_not_fit_a_shape_is_refused_before_it_reaches_native_code(bench, engine, setting, lengths, message):
    _, runtime = bench.of(engine, "bert", "classification")
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=message):
        runtime.run(setting, [random_payload(rng, length) for length in lengths])


def test_a_single_placement_holds_one_length_and_swaps_when_told(bench):
    encoder, shared = bench.of("eager", *PAIRS[0])
    single = BinsRuntime(encoder, SHAPES, "eager", placement="single")
    text = random_payload(np.random.default_rng(0), 6)
    with pytest.raises(InputError, match=r"setting is 0, but must be one that is loaded, \[\]"):
        single.run(0, [text])
    for setting, loaded in [(0, {0, 1}), (2, {2, 3}), (4, {4})]:
        single.load(setting)
        for other in range(len(SHAPES)):
            if other in loaded:
                expected = shared.run(other, [text]).outputs
                np.testing.assert_allclose(single.run(other, [text]).outputs, expected, atol=TOLERANCE)
            else:
                with pytest.raises(InputError, match="one that is loaded"):
                    single.run(other, [text])


@pytest.fixture
def compiled(bench, tmp_path) -> tuple[Path, dict[str, str]]:
    """A copy of the compiled files that a test may damage."""
    bench.of("onnx", *PAIRS[0])
    shutil.copytree(bench.folder, tmp_path, dirs_exist_ok=True)
    return tmp_path, bench.files["onnx", *PAIRS[0]]


def test_files_of_another_version_or_processor_are_refused(tmp_path, compiled, monkeypatch):
    folder, files = compiled
    monkeypatch.setattr("pliant.bins.runtimes.cache._processor", lambda: "another")
    with pytest.raises(DeviceError, match=r"compiled with processor .*, but here is another"):
        BinsRuntime(tiny_encoder(), SHAPES, "onnx", folder, files)
    with pytest.raises(ArtifactError, match=f"{VERSIONS} is not among"):
        BinsRuntime(tiny_encoder(), SHAPES, "onnx", folder, {})


class Noting:
    """An engine that notes which shapes are opened, and how many threads torch has when one of them runs."""

    def __init__(self, *_) -> None:
        self.opened, self.threads = [], []

    def open(self, shape: Shape):
        self.opened.append(shape)

        def call(batch):
            self.threads.append(torch.get_num_threads())
            return np.arange(3.0 * len(batch["input_ids"]), dtype=np.float32).reshape(-1, 3)

        return call


@pytest.fixture
def noting(monkeypatch) -> Noting:
    """The engine that takes the place of plain torch."""
    engine = Noting()
    monkeypatch.setattr("pliant.bins.runtimes.runtime.EagerEngine", lambda *_: engine)
    return engine


def test_all_shapes_are_loaded_the_largest_first_or_those_of_one_length_when_asked(noting):
    shared = BinsRuntime(tiny_encoder(), SHAPES, "eager")
    assert noting.opened == [SHAPES[4], SHAPES[3], SHAPES[2], SHAPES[1], SHAPES[0]]
    shared.load(1)
    assert len(noting.opened) == 5, "all of them stay"
    with pytest.raises(InputError, match="setting is 5, but must be 0 to 4"):
        shared.load(5)
    noting.opened.clear()
    single = BinsRuntime(tiny_encoder(), SHAPES, "eager", placement="single")
    assert noting.opened == []
    single.load(2)
    single.load(4)
    assert noting.opened == [SHAPES[3], SHAPES[2], SHAPES[4]]


def test_a_launch_has_its_own_threads_its_seconds_and_an_output_per_text(noting):
    before = torch.get_num_threads()
    runtime = BinsRuntime(tiny_encoder(), SHAPES, "eager", threads=before + 2)
    text = random_payload(np.random.default_rng(0), 3)
    result = runtime.run(1, [text, text])
    assert [output.tolist() for output in result.outputs] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert 0.0 < result.seconds < 60.0
    assert (noting.threads, torch.get_num_threads()) == ([before + 2], before)


@pytest.mark.parametrize("engine", ["onnx", "aot"])
def test_engines_with_files_want_their_folder(engine):
    with pytest.raises(InputError, match=f"folder is None, but must be where compiled files are, for engine {engine}"):
        BinsRuntime(tiny_encoder(), SHAPES, engine)


def test_without_onnx_runtime_the_other_engines_are_named(monkeypatch, tmp_path):
    files = store(tmp_path, "onnx", lambda target: None)
    monkeypatch.setitem(sys.modules, "pliant.bins.runtimes.onnx_session", None)
    with pytest.raises(InputError, match=r"engine is onnx, but must be aot, graphs or eager: .* is not installed here"):
        BinsRuntime(tiny_encoder(), SHAPES, "onnx", tmp_path, files)


class Package:
    """What AOTInductor loads, with constants of these names; it gives how many tokens each text has."""

    def __init__(self, names: list[str]) -> None:
        self._names, self.loaded = names, {}

    def get_constant_fqns(self) -> list[str]:
        return self._names

    def load_constants(self, constants, **options) -> None:
        self.loaded, self.options = constants, options

    def __call__(self, ids, mask, types):
        assert torch.is_inference_mode_enabled()
        return mask.sum(1, keepdim=True).half()


def test_a_compiled_package_shares_the_encoders_weights_and_is_refused_where_it_wants_others(monkeypatch, tmp_path):
    shapes = SHAPES[1:2]
    files = store(tmp_path, "aot", lambda target: (target / package(shapes[0])).touch())
    (folder,) = tmp_path.iterdir()
    name = next(name for name in tiny_encoder().weights if name.endswith("word_embeddings.weight"))
    packages, paths = [Package([f"model.{name}"]), Package([f"model.{name}", "lost", "gone"])], []
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda path, **_: paths.append(path) or packages.pop(0))
    good, bad = packages
    runtime = BinsRuntime(tiny_encoder(), shapes, "aot", tmp_path, files)
    assert paths == [str(folder / "8x4.pt2")]
    assert list(good.loaded) == [f"model.{name}"]
    np.testing.assert_array_equal(good.loaded[f"model.{name}"].numpy(), tiny_encoder().weights[name])
    assert good.options == {"check_full_update": True, "user_managed": True}
    texts = [random_payload(np.random.default_rng(0), length) for length in (3, 8)]
    outputs = runtime.run(0, texts).outputs
    assert [(output.tolist(), output.dtype) for output in outputs] == [([3.0], np.float32), ([8.0], np.float32)]
    with pytest.raises(
        ArtifactError, match=r"the compiled 4 x 8 wants weights that the encoder lacks: .'lost', 'gone'."
    ):
        BinsRuntime(tiny_encoder(), shapes, "aot", tmp_path, files)
    assert bad.loaded == {}


@pytest.mark.parametrize(("device", "index"), [("cuda:1", 1), ("cuda", -1), ("cpu", -1)])
def test_a_compiled_package_is_loaded_to_the_device_of_the_encoder(monkeypatch, tmp_path, device, index):
    placed = SimpleNamespace(device=torch.device(device))
    model = SimpleNamespace(inputs=(), parameters=lambda: iter([placed]), named_parameters=dict, named_buffers=dict)
    loaded = []

    def load(path, **options):
        loaded.append(options)
        return Package([])

    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    AotEngine(model, tmp_path, {package(SHAPES[1])}).open(SHAPES[1])
    assert loaded == [{"device_index": index}]
