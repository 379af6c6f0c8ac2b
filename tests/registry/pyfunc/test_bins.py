"""A stranger with MLflow, torch and transformers, but without ONNX Runtime or our packages, loads encoders and bins."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.bins.publish import bins_package, encoder_package, record
from pliant.models.text import Reader
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import needed
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade.classifiers import TEXTS
from tests.fixtures.foreign_process import ask, required

pytestmark = pytest.mark.slow

ENCODERS = {
    "classes": tiny_encoder("modernbert", name="classes"),
    "sentences": tiny_encoder("bert", head="embedding", pooling="cls", name="sentences"),
}
NOTES = {
    "choice": {"edges": [16, 64], "costs": [0.004, 0.003], "dynamic": 0.0035},
    "weighed": [{"length": 16, "batch": 1, "static": 0.001, "dynamic": 0.002, "kept": True}],
}
ASKED = {"length": [5, 64, 20], "batch": [1, 4, 3]}
LACKING = ("timm", "torchvision", "PIL", "onnx", "onnxruntime", "onnxscript", "numba", "ray")

STRANGER = """
asked = json.load(open(sys.argv[2]))
texts = pd.DataFrame({"text": asked["texts"]})
found = mlflow.pyfunc.load_model("models:/pliant-bins-encoder-classes@champion").predict(texts)
told = {"classes": found.to_dict("list")}
model = mlflow.pyfunc.load_model("models:/pliant-bins-encoder-sentences@champion")
told["sentences"] = np.asarray(model.predict(texts)).tolist()
bins = mlflow.pyfunc.load_model("models:/pliant-bins-things@champion")
told["bins"] = bins.predict(pd.DataFrame(asked["bins"])).to_dict("list")
try:
    bins.predict(pd.DataFrame({"length": [65], "batch": [1]}))
except Exception as error:
    told["failed"] = str(error)
"""


def test_a_stranger_gets_the_labels_of_a_classifier_and_their_confidence(answers):
    expected = [outputs(ENCODERS["classes"], text) for text in TEXTS]
    assert answers["classes"]["label"] == [ENCODERS["classes"].classes[int(row.argmax())] for row in expected]
    sure = [float(np.exp(row.max()) / np.exp(row).sum()) for row in expected]
    assert answers["classes"]["confidence"] == pytest.approx(sure, abs=1e-4)
    assert "site-packages" not in answers["pliant"]


def test_a_stranger_gets_embeddings(answers):
    for given, text in zip(answers["sentences"], TEXTS, strict=True):
        assert given == pytest.approx(outputs(ENCODERS["sentences"], text), abs=1e-4)
        assert np.linalg.norm(given) == pytest.approx(1, abs=1e-4)


def test_bins_say_which_runtime_is_fastest_and_what_it_takes(answers):
    plans, bins = answers["bins"], some_bins()
    assert plans["runtime"] == ["static", "static", "dynamic"]
    assert list(zip(plans["padded_length"], plans["padded_batch"], strict=True)) == [(16, 1), (64, 4), (20, 3)]
    assert plans["seconds"][0] == pytest.approx(bins.seconds[0])
    assert "1 of 65 tokens, but must be 1 to 4 of 1 to 64" in answers["failed"]


def test_the_requirements_name_no_compiler_and_no_library_of_pictures(shelf):
    names = required(shelf, "pliant-bins-things")
    assert names == set(needed("bins-plan")) == set(needed("bins-encoder"))
    assert {"transformers", "tokenizers"} <= names
    assert not names & {"timm", "torchvision", "pillow", "onnx", "onnxruntime"}


def outputs(encoder: Encoder, text: str) -> np.ndarray:
    reading = Reader(encoder.tokenizer, encoder.max_length).read(text)
    runtime = BinsRuntime(encoder, [Shape(encoder.max_length, 1, True)], "eager")
    return runtime.run(0, [(reading.ids, reading.types)]).outputs[0]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> MlflowRegistry:
    """As the flow would leave it."""
    folder = tmp_path_factory.mktemp("bins")
    registry = MlflowRegistry(f"sqlite:///{folder / 'mlflow.db'}", "pliant-bins", folder / "artifacts")
    with registry.run("release") as run:
        for name, encoder in ENCODERS.items():
            codec.save(encoder, folder / name)
            package = encoder_package(encoder, folder / name, {})
            registry.promote(package.name, registry.publish(run, package).version)
        codec.save(some_bins(), folder / "things")
        package = bins_package(some_bins(), 1, folder / "things", NOTES, record(BinsFlowConfig()))
        registry.promote(package.name, registry.publish(run, package).version)
    return registry


@pytest.fixture(scope="module")
def answers(shelf, tmp_path_factory) -> dict:
    """What the stranger was answered: once, since it takes a while to come in."""
    path: Path = tmp_path_factory.mktemp("stranger") / "asked.json"
    path.write_text(json.dumps({"texts": list(TEXTS), "bins": ASKED}))
    return ask(STRANGER, shelf.tracking_uri, path, *LACKING)
