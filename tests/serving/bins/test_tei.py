"""The bins service through the APIs of text-embeddings-inference and of Hugging Face's inference clients."""

from __future__ import annotations

import httpx2
import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils._http import default_client_factory

from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.models.text import Reader
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import CLASSES, LONG, MOST, PROMPTS, SHAPES, SHORT, TEXT, encoder, publish_tiny
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    yield from _served(tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    yield from _served(tmp_path_factory.mktemp("colours"), "colours")


@pytest.fixture(scope="module")
def meanings(tmp_path_factory):
    yield from _served(tmp_path_factory.mktemp("meanings"), "meanings")


def _served(folder, *names: str):
    registry = FolderRegistry(folder)
    publish_tiny(registry, *names)
    with serving(registry) as service:
        yield service


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


def test_the_other_head_is_refused_in_teis_words(colours, meanings, both):
    for service, path, sentence in (
        (colours, "/embed", "Model is not an embedding model"),
        (meanings, "/predict", "Model is not a classifier model"),
        (both, "/colours/embed", "Model is not an embedding model"),
        (both, "/meanings/predict", "Model is not a classifier model"),
    ):
        response = service.post(path, {"inputs": TEXT})
        assert (response.status_code, response.json()) == (424, {"error": sentence, "error_type": "Backend"})


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


BAD = [
    ("/embed", {"inputs": ""}, 422, "inputs is ''"),
    ("/embed", {"inputs": []}, 422, "inputs is empty"),
    ("/embed", {"inputs": [1, 80]}, 422, "inputs is a list with the id 80"),
    ("/embed", {"inputs": [1] * 41, "truncate": False}, 413, "longer than 40 tokens"),
    ("/embed", {"inputs": "a", "prompt_name": "other"}, 413, "prompt_name is 'other'"),
    ("/embed", {"inputs": ["a"] * 9}, 413, "inputs is a list of 9"),
    ("/embed", {"inputs": "a" * 70_000}, 413, "inputs is 70000 bytes"),
    ("/embed", {"inputs": "a", "deadline": 61}, 422, "deadline is 61"),
    ("/embed", {"inputs": "a", "dimensions": 17}, 422, "dimensions is 17"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 422, "inputs.sentences is empty"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"] * 9}}, 413, "must be at most 8"),
    ("/predict", {"inputs": ["a", 1]}, 422, "inputs[1] is 1"),
    ("/predict", {"inputs": [LONG, LONG], "truncation_direction": "Left"}, 413, "must be Right if a pair is longer"),
    ("/other/embed", {"inputs": "a"}, 404, "task is 'other'"),
]


@pytest.mark.parametrize(("path", "fields", "status", "sentence"), BAD)
def test_what_does_not_fit_is_refused_in_teis_shape_and_the_next_request_served(both, path, fields, status, sentence):
    response = both.post(path, fields)
    assert (response.status_code, response.json()["error_type"]) == (status, "Validation")
    assert sentence in response.json()["error"]
    assert both.post("/embed", {"inputs": SHORT}).status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "status", "sentence"),
    [
        (b'{"inputs": "a"', {}, 400, "body is not JSON"),
        (b'["a"]', {}, 400, "body is a JSON list"),
        (b'{"inputs": "a", "inputs": "b"}', {}, 422, "'inputs' is given 2 times"),
        (b'{"inputs": "a"}', {"content_type": "text/plain"}, 415, "content-type is text/plain"),
        (b'{"inputs": "' + b"a" * 2_000_001 + b'"}', {}, 413, "must be at most 2000000 bytes"),
        (b'{"inputs": "a"}', {"x_pliant_deadline": "soon"}, 422, "x-pliant-deadline is 'soon'"),
        (b'{"inputs": "a"}', {"x_pliant_deadline": "-1"}, 422, "x-pliant-deadline is -1"),
        (b'{"inputs": "a"}', {"x_pliant_deadline": "nan"}, 422, "x-pliant-deadline is nan"),
    ],
)
def test_bodies_and_headers_that_are_none_are_refused(both, content, headers, status, sentence):
    response = both.call("POST", "/embed", content, **headers)
    assert response.status_code == status and sentence in response.json()["error"], response.text
    assert both.post("/embed", {"inputs": SHORT}).status_code == 200


class Bridge(httpx2.BaseTransport):
    """Sends the requests of huggingface_hub to the app."""

    def __init__(self, service) -> None:
        self._service = service

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        kind = request.headers.get("content-type", "")
        answer = self._service.call(request.method, request.url.path, request.read(), content_type=kind)
        return httpx2.Response(answer.status_code, content=answer.content, request=request)


@pytest.fixture
def bridged(both):
    huggingface_hub.set_client_factory(lambda: httpx2.Client(transport=Bridge(both)))
    yield both
    huggingface_hub.set_client_factory(default_client_factory)


def test_huggingface_hubs_client_embeds_and_classifies_at_a_streams_address(bridged):
    client = huggingface_hub.InferenceClient(base_url="http://test/meanings")
    np.testing.assert_allclose(client.feature_extraction(TEXT), expected("meanings", TEXT), atol=1e-5)
    many = client.feature_extraction([SHORT, LONG], truncate=True, truncation_direction="right")
    np.testing.assert_allclose(many, expected("meanings", SHORT, LONG), atol=1e-5)
    told = huggingface_hub.InferenceClient(base_url="http://test/colours").text_classification(TEXT, top_k=2)
    best = np.sort(softmax(expected("colours", TEXT))[0])[::-1]
    assert [one.score for one in told] == pytest.approx(best[:2].tolist(), abs=1e-5)
    with pytest.raises(HfHubHTTPError, match="Model is not a classifier model"):
        client.text_classification([[TEXT]], model="http://test/meanings/predict")


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
