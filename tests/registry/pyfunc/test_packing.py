"""A stranger with MLflow, torch and transformers, but without our packages, loads what packing publishes and asks it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.flows.packing.config import PackingFlowConfig, PlanConfig
from pliant.flows.packing.plan import choose
from pliant.flows.packing.publish import generator_package, plan_package, predictor_package, record
from pliant.packing.engine.model import PredictorModel, load_generator, tokenizer_of
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import needed
from pliant.training.packing.generator import load
from tests.fixtures.foreign_process import ask, required
from tests.fixtures.packing.tiny import CONTEXT, some_packing, some_predictor, write_generator

pytestmark = pytest.mark.slow

TEXTS = ("explain the old oak", "tell me all about iron", "the")
ASKED = {"arrival": [0.0, 0.0, 9.0], "prompt_tokens": [20, 30, 5], "output_tokens": [40, 3, 10]}
LACKING = ("timm", "torchvision", "PIL", "onnx", "onnxruntime", "onnxscript", "numba", "ray", "prefect", "bentoml")

STRANGER = """
asked = json.load(open(sys.argv[2]))
texts = pd.DataFrame({"text": asked["texts"]})
generator = mlflow.pyfunc.load_model("models:/pliant-packing-generator-things@champion")
told = {"generator": generator.predict(texts).to_dict("list")}
told["short"] = generator.predict(texts, params={"max_tokens": 2}).to_dict("list")
predictor = mlflow.pyfunc.load_model("models:/pliant-packing-predictor-things@champion")
told["predictor"] = predictor.predict(texts).to_dict("list")
plan = mlflow.pyfunc.load_model("models:/pliant-packing-things@champion")
told["plan"] = plan.predict(pd.DataFrame(asked["plan"])).to_dict("list")
told["orca"] = plan.predict(pd.DataFrame(asked["plan"]), params={"policy": "orca"}).to_dict("list")
told["failed"] = []
row = {"arrival": [0.0], "prompt_tokens": [5], "output_tokens": [10]}
for act in (
    lambda: generator.predict(texts, params={"max_tokens": 0}),
    lambda: plan.predict(pd.DataFrame(row | {"output_tokens": [1000]})),
    lambda: plan.predict(pd.DataFrame(row), params={"policy": "best"}),
    lambda: predictor.predict(pd.DataFrame({"words": ["a"]})),
):
    try:
        act()
    except Exception as error:
        told["failed"].append(f"{type(error).__name__}: {error}")
"""


def test_a_stranger_gets_the_greedy_completions_of_plain_generation(answers, generator):
    import torch

    model, tokenizer = load_generator(generator), tokenizer_of(generator.tokenizer)
    for text, said, tokens, how in zip(TEXTS, *(answers["generator"][name] for name in COMPLETION), strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            generated = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=min(64, 64 - ids.shape[1]), do_sample=False
            )[0, ids.shape[1] :].tolist()
        assert tokens == len(generated)
        assert how == ("stop" if generated[-1] in generator.ends else "length")
        assert said == tokenizer.decode(generated[:-1] if how == "stop" else generated)
    assert max(answers["short"]["tokens"]) <= 2
    assert "site-packages" not in answers["pliant"]


def test_a_stranger_gets_the_quantiles_and_the_bucket(answers):
    expected = PredictorModel.of(some_predictor()).predict(TEXTS)
    quantiles = answers["predictor"]
    assert list(quantiles) == [f"q{level:g}" for level in some_predictor().levels] + ["bucket"]
    for row, prediction in enumerate(expected):
        said = [quantiles[name][row] for name in quantiles if name != "bucket"]
        assert said == pytest.approx(prediction.tokens, rel=1e-4)
        assert quantiles["bucket"][row] == prediction.bucket


def test_a_plan_says_when_each_request_would_be_done(answers):
    plan, seconds = answers["plan"], some_packing().steps
    assert plan["preemptions"] == [0, 0, 0]
    assert plan["first_token"][2] == pytest.approx(float(seconds.seconds(5, 1, 5)))
    alone = sum(float(seconds.seconds(1, 1, 5 + done)) for done in range(1, 10)) + plan["first_token"][2]
    assert plan["seconds"][2] == pytest.approx(alone)  # it comes when the others are done
    assert plan["seconds"][0] > plan["seconds"][1] > plan["first_token"][1]
    assert answers["orca"]["seconds"][2] == pytest.approx(alone)


def test_what_does_not_fit_is_told(answers):
    wrong = (
        "max_tokens is 0, but must be at least 1",
        "together at most 160",
        "policy is best, but must be one of",
        "text",
    )
    for sentence, words in zip(answers["failed"], wrong, strict=True):
        assert words in sentence


def test_the_requirements_name_no_library_of_pictures_and_no_server(shelf):
    names = required(shelf, "pliant-packing-things")
    assert names == {*needed("packing-plan")} == {*needed("packing-generator")} == {*needed("packing-predictor")}
    assert {"transformers", "tokenizers"} <= names
    assert not names & {"timm", "torchvision", "pillow", "prefect", "bentoml"}


COMPLETION = ("completion", "tokens", "finished")


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    return replace(load(f"path:{write_generator(tmp_path_factory.mktemp('tiny'))}"), name="things")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory, generator) -> MlflowRegistry:
    """As the flow would leave it."""
    folder = tmp_path_factory.mktemp("packing")
    registry = MlflowRegistry(f"sqlite:///{folder / 'mlflow.db'}", "pliant-packing", folder / "artifacts")
    artifacts = {"generator": generator, "predictor": some_predictor(), "plan": some_packing()}
    for name, artifact in artifacts.items():
        codec.save(artifact, folder / name)
    short = (PlanConfig(levels=(1.0,), patience=(1.5,)), ReferenceConfig((0.5,), (1.2,), 20))
    choice, plan_record = choose(some_packing(), CONTEXT, *short), record(PackingFlowConfig())
    packages = (
        generator_package("things", generator, folder / "generator", {}),
        predictor_package("things", some_predictor(), folder / "predictor", {}),
        plan_package(some_packing(), CONTEXT, (1, 1), folder / "plan", choice, plan_record, "data"),
    )
    with registry.run("release") as run:
        for package in packages:
            registry.promote(package.name, registry.publish(run, package).version)
    return registry


@pytest.fixture(scope="module")
def answers(shelf, tmp_path_factory) -> dict:
    """What the stranger was answered: once, since it takes a while to come in."""
    path: Path = tmp_path_factory.mktemp("stranger") / "asked.json"
    path.write_text(json.dumps({"texts": list(TEXTS), "plan": ASKED}))
    return ask(STRANGER, shelf.tracking_uri, path, *LACKING)
