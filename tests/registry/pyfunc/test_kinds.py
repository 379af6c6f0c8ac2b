"""What each kind of artifact answers in an MLflow client, beside plain computations of the same."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from pliant.cascade import run
from pliant.cascade.bag import grams
from pliant.cascade.exit import exit_logits
from pliant.errors import BackboneError, InputError, RegistryError
from pliant.models.artifact import Classifier
from pliant.models.classifier import load_model
from pliant.models.text import Reader
from pliant.packing.engine.complete import Completion
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.registry import codec
from pliant.registry.pyfunc import fetched, labelled
from pliant.registry.pyfunc import packing as packing_kinds
from pliant.registry.pyfunc.tokens import BATCH
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade.artifacts import things
from tests.fixtures.cascade.classifiers import TEXTS, tiny_classifier
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.tiny import CONTEXT, some_packing, some_predictor
from tests.fixtures.pyfunc import served
from tests.fixtures.tokens.samples import WIDTH, random_images, tiny_backbone, tiny_profile, tiny_task


@pytest.fixture
def images_models(tmp_path, monkeypatch):
    """A backbone, and a task that fetches it."""
    digest = codec.save(tiny_backbone(), tmp_path / "shelf")
    stored = {"models:/backbone/1/artifacts/bundle": str(tmp_path / "shelf")}
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", stored.__getitem__)
    task = tiny_task("digits", ["zero", "one", "two"], digest)
    return {
        "backbone": served(tiny_backbone(), tmp_path / "backbone"),
        "task": served(task, tmp_path / "task", backbone="models:/backbone/1", device="cpu"),
    }


@pytest.mark.parametrize(("name", "width"), [("backbone", WIDTH), ("task", 3)])
@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1])
def test_images_have_a_row_each_in_their_order_however_many_they_are(images_models, name, width, count):
    model, images = images_models[name], random_images(BATCH + 1)[:count]
    rows = np.asarray(model.predict(images), float)
    assert rows.shape == (count, width)
    if count > 1:
        np.testing.assert_allclose(rows[-1], np.asarray(model.predict(images[-1:]), float)[0], atol=1e-5)
        assert np.abs(rows[0] - rows[-1]).max() > 1e-3
    if name == "task":
        np.testing.assert_allclose(rows.sum(1), 1, atol=1e-5)


def test_another_model_than_the_one_it_was_made_for_or_none_is_named(tmp_path, monkeypatch):
    digest = codec.save(tiny_classifier(), tmp_path / "bundle")
    stored = {"models:/small/1/artifacts/bundle": str(tmp_path / "bundle")}
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", stored.__getitem__)
    words = ("the cascade mails", "model", "planned")
    assert isinstance(fetched(Classifier, "models:/small/1", digest, *words), Classifier)
    with pytest.raises(BackboneError, match="mails was planned for another model than models:/small/1"):
        fetched(Classifier, "models:/small/1", "0" * 64, *words)
    with pytest.raises(RegistryError, match=r"mails needs its model models:/other/1, .* set MLflow's tracking URI"):
        fetched(Classifier, "models:/other/1", digest, *words)


def test_seconds_are_those_of_the_gamma_and_the_batch_of_each_row(tmp_path):
    """Measured at 1, 2, 4, 8 and 16 images: 1 ms a launch and (21 + gamma) * 0.1 ms an image."""
    profile = served(tiny_profile("digest", "cpu"), tmp_path)
    frame = profile.predict(pd.DataFrame({"gamma": [0, -20, 8, 0], "batch": [2, 16, 1, 3]}))
    assert frame.to_dict("list") == {"seconds": pytest.approx([0.0052, 0.0026, 0.0039, 0.0073])}
    for gamma, batch, sentence in ((3, 1, r"gamma is 3, but must be one of \(-20,"), (0, 0, "batch is 0, but must")):
        with pytest.raises(InputError, match=sentence):
            profile.predict(pd.DataFrame({"gamma": [gamma], "batch": [batch]}))


def test_embeddings_are_of_length_1_do_not_depend_on_the_others_and_read_the_second_text(tmp_path):
    model = served(tiny_encoder("bert", head="embedding", pooling="cls", name="sentences"), tmp_path)
    rows = model.predict(pd.DataFrame({"text": TEXTS[:3]}))
    assert rows.dtype == np.float32 and rows.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(rows[2:], model.predict(pd.DataFrame({"text": TEXTS[2:3]})), atol=1e-6)
    pair = model.predict(pd.DataFrame({"text": TEXTS[:1], "text_pair": TEXTS[1:2]}))
    assert np.abs(pair - rows[:1]).max() > 0.01


@pytest.mark.parametrize("pair", [False, True])
def test_a_level_answers_as_the_model_of_transformers_does(tmp_path, pair):
    classifier = tiny_classifier()
    frame = pd.DataFrame({"text": TEXTS[:3]} | ({"text_pair": TEXTS[3:6]} if pair else {}))
    answers = served(classifier, tmp_path).predict(frame)
    model, reader = load_model(classifier), Reader(classifier.tokenizer, classifier.max_length)
    for row in range(3):
        reading = reader.read(TEXTS[row], TEXTS[3 + row] if pair else None)
        ids, types = (torch.tensor(np.asarray(part, np.int64)[None]) for part in (reading.ids, reading.types))
        with torch.no_grad():
            share_K = model(input_ids=ids, token_type_ids=types).logits.softmax(-1)[0].numpy()
        assert answers["label"][row] == "xyz"[int(share_K.argmax())]
        assert answers["confidence"][row] == pytest.approx(float(share_K.max()), abs=1e-5)


@pytest.fixture
def distilled(tmp_path, monkeypatch):
    """The models of a bag, of an exit and of their cascade, which fetch what they need; and what they are of."""
    digest = codec.save(things(distilled=True).levels[-1], tmp_path / "large")
    sample = things(digests=("", digest), distilled=True)
    bag, head, _ = sample.levels
    digests = *(codec.save(level, tmp_path / level.name) for level in (bag, head)), digest
    profiles = zip(sample.cascade.levels, digests, strict=True)
    planned = replace(sample.cascade, levels=tuple(replace(level, classifier=each) for level, each in profiles))
    uris = {level.name: f"models:/{level.name}/1" for level in sample.levels}
    stored = {f"{uri}/artifacts/bundle": str(tmp_path / name) for name, uri in uris.items()}
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", stored.__getitem__)
    models = {f"model.{name}": uri for name, uri in uris.items()}
    return replace(sample, cascade=planned), {
        "bag": served(bag, tmp_path / "served bag"),
        "exit1": served(head, tmp_path / "served exit", trunk=uris["large"]),
        "cascade": served(planned, tmp_path / "served cascade", **models),
    }


def test_a_bag_and_an_exit_answer_what_their_numbers_say_of_each_text_alone(distilled):
    sample, models = distilled
    bag, head, large = sample.levels
    model, reader = load_model(large), Reader(large.tokenizer, large.max_length)
    frame = pd.DataFrame({"text": TEXTS[:4]})
    said: dict[str, list[np.ndarray]] = {"bag": [], "exit1": []}
    for text in TEXTS[:4]:
        reading = reader.read(text)
        known = [row for gram in grams(reading.ids, reading.types) for row in np.flatnonzero(bag.grams == gram)]
        said["bag"].append(bag.head @ bag.table[known].mean(0) + bag.bias)
        with torch.no_grad():
            ids = torch.tensor(np.asarray(reading.ids, np.int64)[None])
            hidden_ND = model(input_ids=ids, output_hidden_states=True).hidden_states[head.layers][0].numpy()
        said["exit1"].append(exit_logits(head, np.concatenate([hidden_ND.mean(0), hidden_ND.max(0)])[None])[0])
    for name, logits in said.items():
        answers, expected = models[name].predict(frame), labelled("xyz", logits)
        assert list(answers["label"]) == list(expected["label"])
        assert list(answers["confidence"]) == pytest.approx(list(expected["confidence"]), abs=1e-5)


def test_a_cascade_with_distilled_levels_answers_as_it_does_offline(distilled):
    sample, models = distilled
    rows = sample.texts.rows
    answers = models["cascade"].predict(pd.DataFrame({"text": [text for text, _ in rows]}))
    offline = run.run(sample.cascade, run.load(sample.cascade, sample.levels), rows)
    assert list(answers["label"]) == [each.label for each in offline]
    assert list(answers["confidence"]) == pytest.approx([each.confidence for each in offline], abs=1e-5)
    assert list(answers["level"]) == [sample.cascade.levels[each.level].name for each in offline]
    assert set(answers["level"]) == {"bag", "exit1", "large"}


def test_a_classifier_names_the_likeliest_class_and_a_regressor_its_value():
    logits = [np.array([0, np.log(2), 0], np.float32), np.array([np.log(8), 0, 0], np.float32)]
    assert labelled("xyz", logits).to_dict("list") == {
        "label": ["y", "x"],
        "confidence": pytest.approx([2 / 4, 8 / 10]),
    }
    assert labelled((), [np.array([2.5]), np.array([-1.0])]).to_dict("list") == {"label": [2.5, -1.0]}


@pytest.mark.parametrize(
    ("length", "batch", "milliseconds", "padded", "runtime"),
    [
        (5, 1, (2 + 0.32) / 2, (16, 1), "static"),  # half of a dynamic launch of 16 tokens
        (16, 3, (2 + 1.28) / 2, (16, 4), "static"),
        (17, 1, (2 + 1.28) / 2, (64, 1), "static"),  # 2.34 without padding
        (20, 3, 2 + 1.2, (20, 3), "dynamic"),  # 3.56 padded to 4 of 64
        (64, 4, (2 + 5.12) / 2, (64, 4), "static"),
    ],
)
def test_the_fastest_runtime_that_is_large_enough_is_named_with_what_it_takes(
    tmp_path, length, batch, milliseconds, padded, runtime
):
    """Static runtimes for 16 and 64 tokens and 1, 2 or 4 texts; a dynamic launch takes 2 ms and 20 us a token."""
    frame = served(some_bins(), tmp_path).predict(pd.DataFrame({"length": [64, length], "batch": [1, batch]}))
    row = (frame["seconds"][1], frame["padded_length"][1], frame["padded_batch"][1], frame["runtime"][1])
    assert row == (pytest.approx(milliseconds / 1000), *padded, runtime)


def test_a_completion_is_its_text_without_the_end_token_which_is_counted(tmp_path, monkeypatch):
    model, calls = served(replace(tiny_generator(), tokenizer=tiny_classifier().tokenizer), tmp_path), []
    words = model.predictor.tokenizer.encode(TEXTS[0]).ids[:2]

    def complete(generator, prompts, memory, limit, **options):
        calls.append((prompts, memory, limit, options))
        return [Completion((*words, 2), "stop"), Completion(tuple(words), "length")][: len(prompts)]

    monkeypatch.setattr(packing_kinds, "complete", complete)
    frame = model.predict(pd.DataFrame({"text": TEXTS[:2]}))
    said = model.predictor.tokenizer.decode(words)
    assert frame.to_dict("records") == [
        {"completion": said, "tokens": 3, "finished": "stop"},
        {"completion": said, "tokens": 2, "finished": "length"},
    ]
    model.predict(pd.DataFrame({"text": TEXTS[:1]}), {"max_tokens": 1})
    assert [limit for _, _, limit, _ in calls] == [64, 1]
    prompts, memory, _, options = calls[0]
    assert [list(ids) for ids in prompts] == [model.predictor.tokenizer.encode(text).ids for text in TEXTS[:2]]
    assert options == {"device": "cpu"}
    assert memory.pages == 8 * memory.need(model.predictor.generator.context), "eight whole contexts at a time"
    with pytest.raises(InputError, match="max_tokens is 0, but must be at least 1"):
        model.predict(pd.DataFrame({"text": ["a"]}), {"max_tokens": 0})


def test_forecasts_have_a_column_a_quantile_and_the_bucket_last(tmp_path):
    predictor = some_predictor()
    frame = served(predictor, tmp_path).predict(pd.DataFrame({"text": TEXTS[:2]}))
    assert list(frame) == [*(f"q{level:g}" for level in predictor.levels), "bucket"]
    for row, expected in enumerate(PredictorModel.of(predictor).predict(TEXTS[:2])):
        assert list(frame.iloc[row])[:-1] == pytest.approx(expected.tokens, rel=1e-4)
        assert frame["bucket"][row] == expected.bucket


def requests(*rows: tuple[float, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["arrival", "prompt_tokens", "output_tokens"])


def seconds(queries: int, sequences: int, cached: int) -> float:
    """An iteration of the plan's device: 2 ms, 20 us a query, 100 us a sequence and 0.1 us a token in the cache."""
    return 0.002 + 2e-5 * queries + 1e-4 * sequences + 1e-7 * cached


def test_a_plan_says_when_requests_that_share_iterations_would_be_answered(tmp_path):
    plan = served(some_packing(), tmp_path, context=CONTEXT)
    (alone,) = plan.predict(requests((3.0, 5, 3))).to_dict("records")
    first = seconds(5, 1, 5)
    assert alone["first_token"] == pytest.approx(first), "counted from its own arrival"
    assert alone["seconds"] == pytest.approx(first + seconds(1, 1, 6) + seconds(1, 1, 7))
    both = plan.predict(requests((0.0, 5, 2), (0.0, 7, 1)))
    together = seconds(12, 2, 12)
    assert list(both["first_token"]) == pytest.approx([together, together])
    assert list(both["seconds"]) == pytest.approx([together + seconds(1, 1, 6), together])
    assert plan.predict(requests((0.0, 30, 40), (0.0, 20, 3)), {"policy": "orca"}).notna().all().all()
    with pytest.raises(InputError, match="policy is best, but must be one of"):
        plan.predict(requests((0.0, 30, 40)), {"policy": "best"})


def test_the_forecast_of_a_request_is_that_of_the_observed_one_most_like_it(tmp_path, monkeypatch):
    packing = some_packing(
        prompt_tokens=np.array([10, 10, 50], np.int32),
        output_tokens=np.array([5, 50, 5], np.int32),
        forecasts=np.arange(24, dtype=np.float32).reshape(3, len(QUANTILES)),
        buckets=np.array([10, 60, 20], np.int32),
    )
    asked = []
    monkeypatch.setattr(
        packing_kinds, "simulate", lambda prompts, *_: asked.extend(prompts) or SimpleNamespace(fates=[])
    )
    served(packing, tmp_path, context=CONTEXT).predict(
        requests((1.5, 12, 40), (1.5, 40, 6), (1.5, 9, 1), (1.5, 31, 26), (1.5, 159, 1))
    )
    for prompt, like in zip(asked, (1, 2, 0, 2, 2), strict=True):
        assert prompt.forecast == tuple(range(8 * like, 8 * like + 8))
        assert (prompt.bucket, prompt.limit) == ((10, 60, 20)[like], 160 - prompt.tokens)


@pytest.mark.parametrize(("context", "longest"), [(160, 160), (1000, 48 * 16)])
def test_a_row_that_is_no_request_or_exceeds_context_or_memory_is_named(tmp_path, context, longest):
    plan = served(some_packing(), tmp_path, context=context)
    wrong = (0.0, 0, 5), (0.0, 5, 0), (np.inf, 5, 5), (np.nan, 5, 5), (0.0, longest - 1, 2)
    for row in wrong:
        with pytest.raises(InputError, match=rf"row 1 is .* at least 1 token each, together at most {longest}"):
            plan.predict(requests((0.0, 1, 1), row))
