"""The bins service through the APIs of text-embeddings-inference and of Hugging Face's inference clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.models.text import Reader
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.bins import bodies
from pliant.serving.bins.api import embeddings, respond, scores
from pliant.serving.bins.endpoint import MAX_UNPOOLED, Token
from tests.fixtures.bins.in_process import MANY, serving
from tests.fixtures.bins.published import (
    CLASSES,
    LONG,
    MOST,
    PROMPTS,
    SHAPES,
    SHORT,
    TEXT,
    encoder,
    plan,
    publish_compiled,
    publish_tiny,
)
from tests.fixtures.documented import check_answer
from tests.fixtures.registry import FolderRegistry
from tests.serving.bins.conftest import served


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("colours"), "colours")


@pytest.fixture(scope="module")
def meanings(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("meanings"), "meanings")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    yield from served(tmp_path_factory.mktemp("ranks"), "ranks")


def expected(name: str, *texts: str, second: str | None = None) -> np.ndarray:
    """Return the outputs of the model for each text alone."""
    made = encoder(name)
    reader, runtime = Reader(made.tokenizer, MOST), BinsRuntime(made, SHAPES, "eager")
    readings = [reader.read(text, second) for text in texts]
    return np.array([runtime.run(3, [(one.ids, one.types)]).outputs[0] for one in readings])


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def by_class(scores: list[dict]) -> list[float]:
    return [one["score"] for label in CLASSES for one in scores if one["label"] == label]


def test_embeddings_are_the_models_own_at_every_address(meanings, both):
    for service, path in ((meanings, "/embed"), (meanings, "/"), (both, "/meanings/embed"), (both, "/meanings")):
        response = service.post(path, {"inputs": TEXT})
        assert response.status_code == 200, response.text
        np.testing.assert_allclose(response.json(), expected("meanings", TEXT), atol=1e-5)
    response = meanings.post("/embed", {"inputs": [SHORT, TEXT, LONG]})
    np.testing.assert_allclose(response.json(), expected("meanings", SHORT, TEXT, LONG), atol=1e-5)


def test_headers_tell_lengths_bins_and_times(meanings):
    headers = meanings.post("/embed", {"inputs": [SHORT, TEXT, LONG]}).headers
    lengths = [int(one) for one in headers["x-pliant-length"].split(",")]
    assert (len(lengths), lengths[2]) == (3, MOST)
    assert len(headers["x-pliant-bin"].split(",")) == 3
    assert set(headers["x-pliant-bin"].split(",")) <= {"8x1", "8x4", f"{MOST}x1", "dynamic"}
    assert float(headers["x-pliant-queue-seconds"]) >= 0 and float(headers["x-pliant-run-seconds"]) > 0


def test_classes_come_best_first_with_the_softmax_of_the_logits_or_the_logits_themselves(colours):
    (logits,) = expected("colours", TEXT)
    told = colours.post("/predict", {"inputs": TEXT}).json()
    assert [one["score"] for one in told] == sorted((one["score"] for one in told), reverse=True)
    assert by_class(told) == pytest.approx(softmax(logits).tolist(), abs=1e-5)
    raw = colours.post("/predict", {"inputs": [TEXT], "raw_scores": True}).json()
    assert by_class(raw) == pytest.approx(logits.tolist(), abs=1e-5)


def test_a_long_text_is_truncated_at_the_requested_end_or_is_an_error(meanings):
    inputs = LONG + "dogs"
    head, tail = (meanings.post("/embed", {"inputs": inputs, "truncation_direction": d}) for d in ("Right", "Left"))
    assert (head.headers["x-pliant-length"], tail.headers["x-pliant-length"]) == (str(MOST), str(MOST))
    assert head.json() == meanings.post("/embed", {"inputs": inputs + " and more"}).json()
    assert tail.json() == meanings.post("/embed", {"inputs": "more " + inputs, "truncation_direction": "left"}).json()
    assert tail.json() != head.json()
    response = meanings.post("/embed", {"inputs": [SHORT, inputs], "truncate": False})
    assert (response.status_code, response.json()["error_type"]) == (413, "Validation")
    assert f"longer than {MOST} tokens: shorten it" in response.json()["error"]


def test_embeddings_have_length_1_unless_the_request_says_otherwise_and_the_encoder_allows_it(tmp_path, meanings):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "meanings", head={"normalize": False})
    with serving(registry) as service:
        (unit,) = np.array(service.post("/embed", {"inputs": TEXT}).json())
        (plain,) = np.array(service.post("/embed", {"inputs": TEXT, "normalize": False}).json())
    assert np.linalg.norm(unit) == pytest.approx(1, abs=1e-6)
    assert abs(np.linalg.norm(plain) - 1) > 1e-3
    np.testing.assert_allclose(plain / np.linalg.norm(plain), unit, atol=1e-6)
    refused = meanings.post("/embed", {"inputs": TEXT, "normalize": False})
    assert (refused.status_code, "normalizes its embeddings itself" in refused.json()["error"]) == (422, True)


def test_embeddings_are_cut_to_the_wanted_dimensions_and_normalised_after_that_if_at_all(tmp_path, meanings):
    (whole,) = expected("meanings", TEXT)
    (cut,) = np.array(meanings.post("/embed", {"inputs": TEXT, "dimensions": 3}).json())
    np.testing.assert_allclose(cut, whole[:3] / np.linalg.norm(whole[:3]), atol=1e-5)
    assert meanings.post("/embed", {"inputs": TEXT, "dimensions": 16}).json()[0] == pytest.approx(
        whole.tolist(), abs=1e-5
    )
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "meanings", head={"normalize": False})
    with serving(registry) as service:
        (plain,) = service.post("/embed", {"inputs": TEXT, "normalize": False}).json()
        (cut,) = service.post("/embed", {"inputs": TEXT, "normalize": False, "dimensions": 3}).json()
    assert cut == pytest.approx(plain[:3], abs=1e-5)


def test_a_prompt_is_put_before_each_text_and_before_the_text_of_token_ids(meanings):
    wanted = expected("meanings", PROMPTS["query"] + SHORT)
    (tokens,) = meanings.post("/tokenize", {"inputs": SHORT}).json()
    for inputs in (SHORT, [token["id"] for token in tokens]):
        answer = meanings.post("/embed", {"inputs": inputs, "prompt_name": "query"}).json()
        np.testing.assert_allclose(answer, wanted, atol=1e-5)
    plain = meanings.post("/embed", {"inputs": SHORT, "prompt_name": "passage"}).json()
    np.testing.assert_allclose(plain, expected("meanings", SHORT), atol=1e-5)


@pytest.mark.parametrize("path", ["/similarity", "/"])
def test_similarities_are_cosines_to_the_source_sentence(meanings, path):
    inputs = {"source_sentence": SHORT, "sentences": [TEXT, SHORT, LONG]}
    answer = meanings.post(path, {"inputs": inputs, "parameters": {}})
    source, *others = expected("meanings", SHORT, TEXT, SHORT, LONG)
    assert answer.json() == pytest.approx([float(source @ other) for other in others], abs=1e-5)
    assert answer.json()[1] == pytest.approx(1, abs=1e-5) and len(answer.headers["x-pliant-length"].split(",")) == 4
    prompted = meanings.post(path, {"inputs": inputs, "parameters": {"prompt_name": "query", "truncate": True}})
    assert prompted.json() != answer.json()
    refused = meanings.post(path, {"inputs": inputs, "parameters": {"truncate": False}})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")


def test_floats_are_written_with_as_few_digits_as_they_need():
    response = respond([{"score": np.float32(0.1)}])
    assert response.body == b'[{"score":0.1}]' and response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")


def test_an_embedding_shorter_than_1_is_made_longer_too():
    answer = SimpleNamespace(outputs=[np.array([0.3, 0.4], np.float32)], encoder=SimpleNamespace(normalize=False))
    np.testing.assert_allclose(embeddings(answer)[0], [0.6, 0.8], rtol=1e-6)


def test_many_logits_are_no_sigmoids_and_the_largest_do_not_overflow():
    result = scores(np.array([1000.0, 1000.0], np.float32), ("a", "b"), raw=False, max_classes=None)
    assert [(item["label"], float(item["score"])) for item in result] == [("a", 0.5), ("b", 0.5)]
    (low,) = scores(np.array([-1000.0], np.float32), (), raw=False, max_classes=1)
    assert float(low["score"]) == 0.0


def tokens_of(both, inputs, **fields):
    answer = both.post("/meanings/tokenize", {"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_text_gives_its_tokens_with_their_places_between_special_ones_that_have_none(both):
    (tokens,) = tokens_of(both, TEXT)
    encoding = Tokenizer.from_str(encoder("meanings").tokenizer).encode(TEXT)
    assert [token["id"] for token in tokens] == encoding.ids
    first, *middle, last = tokens
    for special, name in ((first, encoding.tokens[0]), (last, encoding.tokens[-1])):
        assert (special["text"], special["special"], special["start"], special["stop"]) == (name, True, None, None)
    assert all(token["text"] == TEXT[token["start"] : token["stop"]] and not token["special"] for token in middle)
    assert "".join(token["text"] for token in middle) == TEXT.replace(" ", "")
    for token in tokens:
        Token(**token)  # these fields, and no other


def test_ids_are_read_back_as_the_text(both):
    lists = [[token["id"] for token in tokens] for tokens in tokens_of(both, [TEXT, SHORT])]
    joined = both.post("/meanings/decode", {"ids": lists}).json()
    tokenizer = Tokenizer.from_str(encoder("meanings").tokenizer)
    assert joined == [tokenizer.decode(ids) for ids in lists]
    assert both.post("/meanings/decode", {"ids": lists[0]}).json() == joined[:1]
    with_special = both.post("/meanings/decode", {"ids": lists[0], "skip_special_tokens": False}).json()
    assert with_special == [tokenizer.decode(lists[0], skip_special_tokens=False)] != joined[:1]


def hidden_states(text: str) -> np.ndarray:
    """Return what the encoder itself gives for each token of the text alone."""
    model, reading = load_model(encoder("meanings")), Reader(encoder("meanings").tokenizer, MOST).read(text)
    with torch.inference_mode():
        states = model.model(
            input_ids=torch.tensor(reading.ids[None].astype(int)),
            token_type_ids=torch.tensor(reading.types[None].astype(int)),
        ).last_hidden_state
    return states[0].numpy()


def check_states(answer) -> None:
    assert answer.status_code == 200, answer.text
    for text, states in zip((SHORT, TEXT, LONG), answer.json(), strict=True):
        np.testing.assert_allclose(states, hidden_states(text), atol=1e-4)


def test_tokens_have_the_last_hidden_states_whatever_shape_runs_them(many):
    answer = many.post("/meanings/embed_all", {"inputs": [SHORT, TEXT, LONG]})
    check_states(answer)
    assert [len(states) for states in answer.json()] == [int(n) for n in answer.headers["x-pliant-length"].split(",")]
    assert many.post("/embed_all", {"inputs": SHORT}).status_code == 200
    mean = np.mean(many.post("/meanings/embed_all", {"inputs": TEXT}).json()[0], 0)
    (pooled,) = many.post("/meanings/embed", {"inputs": TEXT}).json()
    np.testing.assert_allclose(mean / np.linalg.norm(mean), pooled, atol=1e-5)


def test_pooled_and_unpooled_texts_share_a_launch(many):
    """Eight requests at once are more than one launch, and some launches have both kinds."""

    async def at_once():
        paths = ["/meanings/embed_all", "/meanings/embed"] * 4
        return await asyncio.gather(*(many.posting(path, {"inputs": [SHORT, SHORT]}) for path in paths))

    unpooled, pooled = hidden_states(SHORT), many.post("/meanings/embed", {"inputs": SHORT}).json()[0]
    for number, answer in enumerate(many.wait(at_once())):
        for row in answer.json():
            np.testing.assert_allclose(row, pooled if number % 2 else unpooled, atol=1e-4)


def test_compiled_files_give_them_too_and_those_of_former_versions_are_refused(tmp_path):
    registry = FolderRegistry(tmp_path / "registry")
    settings = MANY.replace(home=tmp_path / "home")
    publish_compiled(registry, Path(settings.home), "meanings")
    with serving(registry, settings) as service:
        check_states(service.post("/embed_all", {"inputs": [SHORT, TEXT, LONG]}))
        (files,) = [served.bins.files for served in service.present.catalog.tasks.values()]
    former = FolderRegistry(tmp_path / "former")
    digest = former.publish(BINS_ENCODER + "meanings", encoder("meanings"))
    former.publish(BINS_PREFIX + "meanings", plan("meanings", digest, engine="onnx", files=dict(files)))
    with serving(former, settings) as service:
        refused = service.post("/embed_all", {"inputs": SHORT})
        assert (refused.status_code, refused.json()["error_type"]) == (424, "Backend")
        assert (
            "`embed_all` is not available for meanings: its runtimes were compiled without" in refused.json()["error"]
        )
        assert service.post("/embed", {"inputs": SHORT}).status_code == 200


def test_more_tokens_than_an_answer_may_hold_are_refused(many):
    refused = many.post("/meanings/embed_all", {"inputs": [LONG] * (MAX_UNPOOLED // MOST + 1)})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
    assert f"but must have at most {MAX_UNPOOLED}, each with an embedding" in refused.json()["error"]
    assert many.post("/meanings/embed_all", {"inputs": [LONG] * 2}).status_code == 200


RANKED = [TEXT, "dogs or cats", LONG, "trees\x00", "every large word"]


def logits(query: str = SHORT) -> np.ndarray:
    """Return the model's output for each pair alone."""
    model = encoder("ranks")
    reader, runtime = Reader(model.tokenizer, MOST), BinsRuntime(model, SHAPES, "eager")
    readings = [reader.read(query, text.replace("\x00", " ")) for text in RANKED]
    return np.array([runtime.run(3, [(one.ids, one.types)]).outputs[0][0] for one in readings])


def test_texts_come_best_first_with_the_sigmoid_of_their_logits_or_the_logits_themselves(ranks, three):
    scores = logits()
    order = np.argsort(-scores).tolist()
    assert len({round(float(score), 3) for score in scores}) == len(RANKED), "the model tells the texts apart"
    for service, path in ((ranks, "/rerank"), (ranks, "/"), (three, "/ranks/rerank"), (three, "/rerank")):
        answer = service.post(path, {"query": SHORT, "texts": RANKED})
        assert [set(rank) for rank in answer.json()] == [{"index", "score"}] * len(RANKED)
        assert [rank["index"] for rank in answer.json()] == order
        assert [rank["score"] for rank in answer.json()] == pytest.approx(
            [1 / (1 + np.exp(-scores[index])) for index in order], abs=1e-5
        )
        assert len(answer.headers["x-pliant-length"].split(",")) == len(RANKED)
    raw = ranks.post("/rerank", {"query": SHORT, "texts": RANKED, "raw_scores": True, "return_text": True}).json()
    assert [rank["score"] for rank in raw] == pytest.approx(scores[order].tolist(), abs=1e-5)
    assert [rank["text"] for rank in raw] == [RANKED[index] for index in order]
    for rank in raw:
        check_answer(bodies.Rank, rank)


def test_a_reranker_classifies_too_and_describes_itself_as_tei_does(ranks):
    (single,) = ranks.post("/predict", {"inputs": [SHORT, TEXT]}).json()
    assert single == {"label": "LABEL_0", "score": pytest.approx(1 / (1 + np.exp(-logits()[0])), abs=1e-5)}
    assert ranks.post("/", {"inputs": [SHORT, TEXT]}).json() == [single]
    assert list(ranks.call("GET", "/info").json()["model_type"]) == ["reranker"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/colours/embed", "Model is not an embedding model"),
        ("/colours/embed_all", "Model is not an embedding model"),
        ("/meanings/predict", "Model is not a classifier model"),
        ("/colours/rerank", "model is not a re-ranker model"),
        ("/meanings/embed_sparse", "Model is not an embedding model with SPLADE pooling"),
        ("/colours/embed_sparse", "Model is not an embedding model with SPLADE pooling"),
    ],
)
def test_what_a_stream_does_not_do_is_refused_in_teis_words(three, path, sentence):
    refused = three.post(path, {"inputs": "a"})
    assert (refused.status_code, refused.json()) == (424, {"error": sentence, "error_type": "Backend"})


BAD = [
    ("/embed", {"inputs": []}, 422, "inputs is empty"),
    ("/embed", {"inputs": [1, 80]}, 422, "inputs is a list with the id 80"),
    ("/embed", {"inputs": [1] * 41, "truncate": False}, 413, "longer than 40 tokens"),
    ("/embed", {"inputs": "a", "prompt_name": "other"}, 413, "prompt_name is 'other'"),
    ("/embed", {"inputs": ["a"] * 9}, 413, "inputs is a list of 9"),
    ("/embed", {"inputs": "a" * 70_000}, 413, "inputs is 70000 bytes"),
    ("/embed", {"inputs": "a", "deadline": 61}, 422, "deadline is 61"),
    ("/embed", {"inputs": "a", "dimensions": 17}, 422, "dimensions is 17"),
    ("/embed_all", {"inputs": LONG, "truncate": False}, 413, "longer than 40 tokens"),
    ("/other/embed_sparse", {"inputs": "a"}, 404, "task is 'other'"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 422, "inputs.sentences is empty"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"] * 9}}, 413, "must be at most 8"),
    ("/colours/predict", {"inputs": [LONG, LONG], "truncation_direction": "Left"}, 413, "must be Right if a pair"),
    ("/rerank", {"query": "a", "texts": []}, 422, "texts is empty"),
    ("/rerank", {"query": "a", "texts": ["a"] * 9}, 413, "texts is a list of 9"),
    ("/rerank", {"query": "a", "texts": [LONG], "truncate": False}, 413, "longer than 40 tokens"),
    ("/rerank", {"query": "a", "texts": [LONG], "truncation_direction": "Left"}, 413, "must be Right if a pair"),
    ("/meanings/tokenize", {"inputs": []}, 422, "inputs is empty"),
    ("/meanings/tokenize", {"inputs": ["a"] * 9}, 413, "inputs is a list of 9"),
    ("/meanings/tokenize", {"inputs": ["a" * 60_000] * 5}, 413, "inputs are 300000 bytes together"),
    ("/meanings/tokenize", {"inputs": "a", "prompt_name": "x"}, 413, "prompt_name is 'x'"),
    ("/colours/tokenize", {"inputs": "a", "prompt_name": "x"}, 413, "no prompts were found"),
    ("/meanings/decode", {"ids": []}, 422, "ids is empty"),
    ("/meanings/decode", {"ids": [[1]] * 9}, 413, "ids is a list of 9"),
    ("/other/decode", {"ids": [1]}, 404, "task is 'other'"),
    ("/tokenize", {"inputs": "a"}, 422, "task is missing"),
]


@pytest.mark.parametrize(("path", "fields", "status", "sentence"), BAD)
def test_what_does_not_fit_is_refused_in_teis_shape_and_the_next_request_served(three, path, fields, status, sentence):
    response = three.post(path, fields)
    assert (response.status_code, response.json()["error_type"]) == (status, "Validation")
    assert sentence in response.json()["error"]
    assert three.post("/embed", {"inputs": SHORT}).status_code == 200


def test_a_wrong_method_is_answered_with_the_right_ones(both):
    for path, right in (("/status", "GET"), ("/info", "GET"), ("/colours/health", "GET"), ("/embed", "POST")):
        refused = both.call("PUT", path)
        assert (refused.status_code, refused.headers["allow"].split(", ")[0]) == (405, right), path


def test_health_and_info_are_answered_for_a_stream_of_either_head(both):
    assert both.call("GET", "/health").status_code == both.call("GET", "/colours/health").status_code == 200
    for name, kind in (("colours", "classifier"), ("meanings", "embedding")):
        page = both.call("GET", f"/{name}/info").json()
        assert (page["model_id"], list(page["model_type"])) == (name, [kind])
        limits = page["max_input_length"], page["max_concurrent_requests"], page["max_client_batch_size"]
        assert limits == (MOST, 2048, 8)
    assert both.call("GET", "/info").status_code == 422


def test_a_service_whose_devices_are_down_is_not_well(colours, monkeypatch):
    monkeypatch.setattr(type(colours.endpoint), "ready", False)
    answer = colours.call("GET", "/health")
    assert (answer.status_code, answer.json()) == (503, {"error": "unhealthy", "error_type": "Unhealthy"})
