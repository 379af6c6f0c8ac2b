"""The cascade on a CPU: transformers' answers, alone and in a batch; eager attention's importance; runs as planned."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.cascade.attention import Received, blocks, watch
from pliant.cascade.evaluate import EvaluationData, settle, walk
from pliant.cascade.run import load, run
from pliant.cascade.runtime import STATES, CascadeRuntime, Execution, Part, pack
from pliant.cascade.trunk import Trunk
from pliant.errors import ArtifactError, InputError
from pliant.fallbacks import Collector
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, positions, typed
from pliant.models.execution import PackedLinear, can_pack
from tests.fixtures.cascade.artifacts import CLASSES, Things, things
from tests.fixtures.cascade.classifiers import tiny_classifier, tiny_exit

LENGTHS = (12, 5, 20, 12)


def payloads(lengths=LENGTHS, typed: bool = True):
    rng = np.random.default_rng(1)
    drawn = []
    for length in lengths:
        types = (np.arange(length) >= length // 2) & typed
        drawn.append((rng.integers(5, 80, length).astype(np.int32), types.astype(np.int8)))
    return drawn


def alone(classifier: Classifier, payload, **options) -> torch.Tensor:
    """Return the logits of transformers' unchanged model."""
    ids, types = (torch.from_numpy(each.astype(np.int64))[None] for each in payload)
    with torch.inference_mode():
        options = {"token_type_ids": types} if options.get("typed", True) else {}
        return load_model(classifier)(input_ids=ids, attention_mask=torch.ones_like(ids), **options).logits[0]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
@pytest.mark.parametrize("family", ["bert", "electra", "albert"])
def test_a_padded_batch_gives_each_text_what_it_gets_alone(family, importance, packed):
    classifier = tiny_classifier(family=family)
    run = CascadeRuntime({4: classifier}, execution=Execution(packed=packed)).run(4, payloads(), importance)
    assert [row.dtype for row in run.logits] == [np.float32] * 4
    for row, payload in zip(run.logits, payloads(), strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload), atol=1e-5)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "t5"])
def test_families_without_token_types_or_with_one_are_given_none(family):
    classifier = tiny_classifier(family=family)
    some = [
        (np.append(ids, 3).astype(np.int32), np.append(types, 1)) for ids, types in payloads((9, 9))
    ]  # T5 needs an end token
    run = CascadeRuntime({0: classifier}).run(0, some)
    for row, payload in zip(run.logits, some, strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload, typed=False), atol=1e-5)


@pytest.mark.parametrize(("family", "most"), [("bert", 40), ("roberta", 38), ("distilbert", 40), ("electra", 40)])
def test_a_text_beyond_the_models_positions_is_refused_with_the_limit(family, most):
    """RoBERTa's table of 40 positions serves 38 tokens: those up to the padding's own are unused."""
    classifier = tiny_classifier("base", family)
    assert positions(load_model(classifier)) == most
    runtime = CascadeRuntime({0: classifier})
    assert len(runtime.run(0, payloads((most,))).logits) == 1
    with pytest.raises(InputError, match=f"text is {most + 1} tokens long, but must be at most {most} for base"):
        runtime.run(0, payloads((5, most + 1)))


def test_importance_of_a_model_without_the_attention_interface_is_refused_by_name():
    runtime = CascadeRuntime({0: tiny_classifier("odd", "falcon")})
    assert len(runtime.run(0, payloads((6,))).logits) == 1
    with pytest.raises(InputError, match="importance is asked of odd"):
        runtime.run(0, payloads((6,)), importance=True)


@pytest.fixture
def with_bfloat16(monkeypatch):
    """On every processor, though slowly where it has no instructions for it. Packing needs them."""
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)


@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_weights_are_converted_once_and_no_run_converts_any(with_bfloat16, family, importance):
    """Autocast over weights in float32 converted each of them in every launch, which doubled the operations."""
    classifier = tiny_classifier(family=family)
    runtime = CascadeRuntime({0: classifier}, execution=Execution("bfloat16", packed=False))
    module = runtime._models[0].module
    assert {weight.dtype for weight in module.parameters()} == {torch.bfloat16}
    weights = {weight.data_ptr() for weight in module.parameters()}
    with Conversions(weights) as converted:
        run = runtime.run(0, payloads(typed=family == "bert"), importance)
    assert converted.weights == 0
    plain = CascadeRuntime({0: classifier}, execution=Execution(packed=False))
    expected = plain.run(0, payloads(typed=family == "bert"), importance)
    for row, exact in zip(run.logits, expected.logits, strict=True):
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, exact, atol=0.05)


class Conversions(TorchDispatchMode):
    """Counts the operations that convert a weight, by its address."""

    def __init__(self, addresses) -> None:
        super().__init__()
        self.addresses, self.weights = addresses, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in self.addresses:
            self.weights += 1
        return function(*args, **(kwargs or {}))


def test_a_decoder_in_a_padded_batch_answers_at_the_last_token_of_each_text():
    """transformers finds that token by the padding's id, which therefore must be the model's own."""
    classifier = tiny_classifier(family="llama")
    config = {**json.loads(classifier.config), "pad_token_id": 1}
    classifier = replace(classifier, config=json.dumps(config))
    some = payloads(typed=False)
    run = CascadeRuntime({0: classifier}).run(0, some)
    for row, payload in zip(run.logits, some, strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload, typed=False), atol=1e-5)


@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
def test_a_batch_that_the_device_lacks_memory_for_runs_in_smaller_ones_and_says_so(monkeypatch, importance):
    runtime, noted = CascadeRuntime({4: tiny_classifier()}), Collector()
    expected = runtime.run(4, payloads(), importance)
    sizes, pad = [], CascadeRuntime._pad

    def short_of_memory(self, loaded, texts):
        sizes.append(len(texts))
        if len(texts) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pad(self, loaded, texts)

    monkeypatch.setattr(CascadeRuntime, "_pad", short_of_memory)
    for _ in range(2):
        run = runtime.run(4, payloads(), importance)
        for rows, wanted in ((run.logits, expected.logits), (run.importance or [], expected.importance or [])):
            for row, exact in zip(rows, wanted, strict=True):
                np.testing.assert_allclose(row, exact, atol=1e-4, rtol=1e-4)
    assert sizes == [4, 2, 2, 2, 2], "the larger batch is not tried again"
    (fallback,) = noted.take()
    assert fallback.kind == "memory"
    assert fallback.reason.endswith("runs at most 2 at a time: the device lacked memory for 4")


PACKS = pytest.mark.skipif(not can_pack(), reason="oneDNN's linear layers are for x86")


def linear(model: nn.Module, kind: type) -> list[nn.Module]:
    return [child for child in layers(model).modules() if type(child) is kind]


@PACKS
@pytest.mark.parametrize("family", ["bert", "distilbert"])
@torch.no_grad()
def test_a_packed_encoder_gives_the_same_logits(family):
    plain, packed = (load_model(tiny_classifier(family=family)) for _ in range(2))
    count = len(linear(plain, nn.Linear))
    pack(packed)
    assert not linear(packed, nn.Linear) and len(linear(packed, PackedLinear)) == count > 0
    assert sum(layer._activation == "gelu" for layer in linear(packed, PackedLinear)) == 2, "one a layer"
    ids = torch.randint(5, 80, (3, 12), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(packed(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


WHOLE, EXIT, REST, SECOND, LAST = range(5)
"""A classifier; its exit behind one layer and what is left; an exit behind two that goes on from the first, and what is
left behind that."""


def parts(family: str = "bert") -> dict[int, Part | Classifier]:
    one = tiny_classifier("large", family, layers=3)
    first, second = tiny_exit(1), tiny_exit(2, seed=1)
    return {WHOLE: one, EXIT: Part(one, 0, first), REST: Part(one, 1), SECOND: Part(one, 1, second), LAST: Part(one, 2)}


def read_by_exits(classifier: Classifier, payload, layers: int) -> torch.Tensor:
    """Return the mean and the maximum of the hidden states that transformers' unchanged model returns for one text."""
    ids, types = (torch.from_numpy(each.astype(np.int64))[None] for each in payload)
    model = load_model(classifier)
    options = {"token_type_ids": types} if typed(model) else {}
    with torch.inference_mode():
        hidden_ND = model(input_ids=ids, output_hidden_states=True, **options).hidden_states[layers][0]
    return torch.cat([hidden_ND.mean(0), hidden_ND.max(0).values])


def head(exit, feature_F: torch.Tensor) -> torch.Tensor:
    into, into_bias, out, out_bias = map(torch.from_numpy, (exit.into, exit.into_bias, exit.out, exit.out_bias))
    return out @ nn.functional.gelu(into @ feature_F + into_bias) + out_bias


def first_layers(runtime: CascadeRuntime) -> list[int]:
    """Return a list to which every run of a model's first layer adds the size of its batch."""
    runs: list[int] = []
    layers(runtime._models[0].module)[0].register_forward_hook(lambda *call: runs.append(len(call[1][0])))
    return runs


CUT = ("bert", "roberta", "electra", "distilbert", "modernbert", "mpnet", "deberta-v2")


@pytest.mark.parametrize("family", CUT)
def test_an_exit_answers_from_the_mean_and_maximum_over_each_texts_own_tokens(family):
    several = parts(family)
    runtime = CascadeRuntime(several)
    for number in (EXIT, SECOND):
        for row, payload in zip(runtime.run(number, payloads()).logits, payloads(), strict=True):
            part = several[number]
            expected = head(part.exit, read_by_exits(part.classifier, payload, part.exit.layers))
            np.testing.assert_allclose(row, expected, atol=1e-4)


@pytest.mark.parametrize("family", CUT)
def test_texts_regrouped_behind_an_exit_get_the_whole_classifiers_answers_without_its_first_layer(family):
    runtime, drawn = CascadeRuntime(parts(family)), payloads((12, 5, 20, 12, 9))
    expected = runtime.run(WHOLE, drawn).logits
    for way in ((EXIT, REST), (EXIT, SECOND, LAST)):
        for number in way[:-1]:
            runtime.run(number, drawn[:2])
            runtime.run(number, drawn[2:])
        runs = first_layers(runtime)
        for group in ([4, 0, 2], [3], [1]):
            rest = runtime.run(way[-1], [drawn[row] for row in group])
            np.testing.assert_allclose(rest.logits, [expected[row] for row in group], atol=1e-4)
        assert not runs


def test_a_launch_with_a_text_whose_states_are_gone_runs_from_the_first_layer_on(monkeypatch):
    drawn = payloads()
    expected = CascadeRuntime(parts()).run(WHOLE, drawn).logits
    for most in (0, 4 * 16 * 20):  # bytes: of none, of some
        monkeypatch.setitem(STATES, "cpu", most)
        runtime = CascadeRuntime(parts())
        runtime.run(EXIT, drawn)
        runs = first_layers(runtime)
        np.testing.assert_allclose(runtime.run(REST, drawn).logits, expected, atol=1e-4)
        assert runs == [4]


def test_states_are_taken_by_the_level_that_ends_the_trunk_and_equal_texts_share_them():
    runtime, (text, *_) = CascadeRuntime(parts()), payloads()
    runtime.run(EXIT, [text, text])
    runs = first_layers(runtime)
    runtime.run(REST, [text, text])
    assert not runs
    runtime.run(REST, [text])
    assert runs == [1]


def test_parts_of_one_classifier_share_its_weights_unless_they_compute_otherwise():
    assert len(CascadeRuntime(parts())._models) == 1
    ways = {number: Execution(packed=number == WHOLE) for number in parts()}
    assert len(CascadeRuntime(parts(), execution=ways)._models) == 2


@pytest.mark.parametrize("family", CUT)
def test_hidden_gives_the_whole_classifiers_logits_and_what_its_exits_read(family):
    runtime, classifier = CascadeRuntime(parts(family)), parts(family)[WHOLE]
    logits, features = runtime.hidden(WHOLE, payloads(), [2, 1])
    np.testing.assert_allclose(logits, runtime.run(WHOLE, payloads()).logits, atol=1e-5)
    for payload, feature_LF in zip(payloads(), features, strict=True):
        assert (feature_LF.dtype, feature_LF.shape) == (np.float32, (2, 32))
        for row, behind in zip(feature_LF, (2, 1), strict=True):
            np.testing.assert_allclose(row, read_by_exits(classifier, payload, behind), atol=1e-4)


def test_an_exit_computes_what_hidden_says_it_reads():
    several = parts()
    runtime = CascadeRuntime(several)
    _, features = runtime.hidden(WHOLE, payloads(), [1])
    expected = [head(several[EXIT].exit, torch.from_numpy(feature_LF[0])) for feature_LF in features]
    np.testing.assert_allclose(runtime.run(EXIT, payloads()).logits, torch.stack(expected), atol=1e-6)


@pytest.mark.parametrize("number", [EXIT, REST])
def test_importance_of_a_part_is_refused_by_name(number):
    name = "exit1" if number == EXIT else "large"
    with pytest.raises(InputError, match=f"importance is asked of {name}, but must be asked of a classifier that runs"):
        CascadeRuntime(parts()).run(number, payloads(), importance=True)


def test_parts_that_fit_no_classifier_are_refused():
    one = tiny_classifier(layers=3)
    with pytest.raises(InputError, match="begin is 1, but must be at least 0 and less than the layers of the exit"):
        Part(one, 1, tiny_exit(1))
    with pytest.raises(ArtifactError, match="the exit exit1 reads 10 numbers, but small gives 32"):
        CascadeRuntime({0: Part(one, 0, tiny_exit(width=5))})
    for beyond in (Part(one, 0, tiny_exit(3)), Part(one, 3)):
        with pytest.raises(ArtifactError, match="cannot be cut behind 3 of its layers: its list has 3"):
            CascadeRuntime({0: beyond})
    with pytest.raises(InputError, match="layers is empty"):
        CascadeRuntime({0: one}).hidden(0, payloads(), [])


def test_a_resumed_batch_that_the_device_lacks_memory_for_goes_on_from_its_states_in_pieces(monkeypatch):
    runtime = CascadeRuntime(parts())
    expected = runtime.run(WHOLE, payloads()).logits
    runtime.run(EXIT, payloads())
    runs, rest = first_layers(runtime), Trunk.rest

    def short_of_memory(self, start, arguments):
        if len(start.hidden_BND) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return rest(self, start, arguments)

    monkeypatch.setattr(Trunk, "rest", short_of_memory)
    np.testing.assert_allclose(runtime.run(REST, payloads()).logits, expected, atol=1e-4)
    assert not runs


def test_in_half_precision_what_is_left_behind_an_exit_gives_the_whole_classifiers_answers(with_bfloat16):
    runtime = CascadeRuntime(parts(), execution=Execution("bfloat16", packed=False))
    runtime.run(EXIT, payloads())
    np.testing.assert_allclose(runtime.run(REST, payloads()).logits, runtime.run(WHOLE, payloads()).logits, atol=0.05)


@pytest.fixture(scope="module", params=["single", "pairs", "regression", "distilled", "regression distilled"])
def setting(request) -> Things:
    kind = request.param
    return things(kind == "pairs", () if "regression" in kind else CLASSES, distilled="distilled" in kind)


@pytest.fixture(scope="module")
def models(setting):
    return load(setting.cascade, setting.levels)


def test_every_candidate_answers_as_planned_from_the_saved_outputs(setting, models):
    cascade = setting.cascade
    for number, candidate in enumerate(cascade.candidates):
        steps = walk(candidate, EvaluationData(setting.outputs, cascade.levels, cascade.tolerance))
        expected = settle(steps)
        answered = run(cascade, models, setting.texts.rows, number)
        assert len(answered) == len(setting.texts.rows)
        for row, answer in enumerate(answered):
            last = int(expected.steps_R[row]) - 1
            np.testing.assert_allclose(answer.answer, steps[last].answer_RK[row], rtol=1e-4, atol=1e-5)
            assert answer.level == candidate.levels[last]
            assert answer.lengths == tuple(int(step.length_R[row]) for step in steps[: last + 1])
        labels = np.array([_number(cascade, answer.label) for answer in answered])
        right = np.abs(labels - setting.texts.labels) <= cascade.tolerance
        np.testing.assert_array_equal(right, expected.correct_R)


def _number(cascade, label) -> float:
    return float(cascade.classes.index(label)) if cascade.classes else label


SIZES = (20, 13, 7)
FAMILIES = ("bert", "roberta", "electra", "distilbert", "albert", "modernbert", "llama")


def batch(pad: int, lengths=SIZES) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(0)
    valid_BN = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    id_BN = torch.from_numpy(rng.integers(5, 80, tuple(valid_BN.shape))).where(valid_BN, pad)
    return {"input_ids": id_BN, "attention_mask": valid_BN.long()}


@torch.inference_mode()
def eager(classifier, inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits, and the attention that valid tokens give, summed over layers, heads and queries."""
    model = load_model(classifier)
    model.set_attn_implementation("eager")
    run = model(**inputs, output_attentions=True)
    given_BHNM = sum(run.attentions) * inputs["attention_mask"][:, None, :, None]
    return run.logits, given_BHNM.sum((1, 2))


@pytest.mark.parametrize("lengths", [SIZES, (20, 20)])
@pytest.mark.parametrize("limit", [None, 700, 90, 1], ids=lambda limit: f"limit {limit}")
@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_the_sum_of_eager_attentions_and_the_logits_stay(family, limit, lengths):
    classifier = tiny_classifier(family=family)
    model = load_model(classifier)
    inputs = batch(model.config.pad_token_id, lengths)
    logit_BK, expected_BM = eager(classifier, inputs)
    watch(model)
    padded = len(set(lengths)) > 1
    received = Received(inputs["attention_mask"].bool() if padded else None, limit)
    with torch.inference_mode():
        run = model(**(inputs if padded else {"input_ids": inputs["input_ids"]}), received=received)
    np.testing.assert_allclose(run.logits, logit_BK, atol=1e-5)
    np.testing.assert_allclose(received.total_BM, expected_BM, atol=1e-5)
    assert not received.total_BM[inputs["attention_mask"] == 0].any()


def test_a_model_that_is_not_asked_runs_plain_attention_to_the_last_bit():
    classifier = tiny_classifier()
    plain, watched = load_model(classifier), load_model(classifier)
    watch(watched)
    with torch.inference_mode():
        assert torch.equal(watched(**batch(0)).logits, plain(**batch(0)).logits)


def test_two_runs_of_one_model_at_once_do_not_mix_their_importances():
    model = load_model(tiny_classifier())
    watch(model)
    first, other = Received(), Received()
    with torch.inference_mode():
        model(input_ids=torch.full((1, 5), 7), received=first)
        model(input_ids=torch.full((1, 9), 8), received=other)
    assert (first.total_BM.shape, other.total_BM.shape) == ((1, 5), (1, 9))


@given(*(st.integers(1, 7) for _ in range(4)), st.integers(1, 500))
def test_blocks_cover_every_weight_once_within_the_limit(batch, heads, queries, keys, limit):
    seen = np.zeros((batch, heads, queries), dtype=int)
    for block in blocks(batch, heads, queries, keys, limit):
        seen[block] += 1
        assert seen[block].size * keys <= max(limit, keys)
    assert np.all(seen == 1)
