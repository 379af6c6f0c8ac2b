"""The OpenAPI page of bins documents what the service takes and answers."""

from __future__ import annotations

import pytest

from pliant.serving.bins import bodies
from pliant.serving.http.schemas import OpenaiErrorAnswer, OpenaiModels, Score, TeiError
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.documented import body_schema, check_answer, check_body, statuses
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry, "colours", "meanings", "ranks")
    with serving(registry) as service:
        yield service


@pytest.mark.parametrize(
    ("path", "usual"),
    [
        ("/meanings/embed", {"inputs": "a dog"}),
        ("/meanings/embed_all", {"inputs": "a dog"}),
        ("/meanings/similarity", {"inputs": {"source_sentence": "a dog", "sentences": ["cats"]}}),
        ("/meanings/tokenize", {"inputs": "a dog"}),
        ("/meanings/decode", {"ids": [1]}),
        ("/colours/predict", {"inputs": "a dog"}),
        ("/ranks/rerank", {"query": "a dog", "texts": ["cats", "a dog"]}),
        ("/v1/embeddings", {"input": "a dog"}),
        ("/v1/rerank", {"query": "a dog", "documents": ["cats", {"text": "a dog"}]}),
    ],
)
def test_a_request_is_taken_within_the_documented_limits_of_its_fields(both, path, usual):
    documented = path if path.startswith("/v1") else "/{task}/" + path.rpartition("/")[2]

    def read(body):
        response = both.post(path, body)
        late = response.status_code in (429, 503)  # a deadline of a millionth of a second is valid, and missed
        content = response.json()
        if isinstance(content, dict):
            content.pop("id", None)  # of a reranking: always another
        return 200 if late else response.status_code, content

    # /predict also takes a list of one text (what is documented is checked below), and only some encoders a normalize.
    skip = ("model", "parameters", "normalize", *(("inputs",) if path.endswith("/predict") else ()))
    refused = check_body(body_schema(both.app, documented), usual, read, skip)
    assert refused <= statuses(both.app, documented)


def test_embeddings_are_normalized_unless_the_documented_field_says_otherwise(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, "meanings", head={"normalize": False})
    with serving(registry) as service:
        default = body_schema(service.app, "/embed")["properties"]["normalize"]["default"]
        usual, explicit, other = (
            service.post("/embed", {"inputs": "a dog", **more}).json()
            for more in ({}, {"normalize": default}, {"normalize": not default})
        )
        assert usual == explicit != other


def test_pairs_and_batches_are_taken_in_the_documented_shapes(both):
    fields = body_schema(both.app, "/predict")["properties"]["inputs"]["oneOf"]
    _, pair, batch = fields
    for length in (2, 3):
        status = both.post("/colours/predict", {"inputs": ["a dog"] * length}).status_code
        assert (status == 200) is (pair["minItems"] <= length <= pair["maxItems"])
    for length in (0, 1, 2, 3):
        status = both.post("/colours/predict", {"inputs": [["a dog"] * length]}).status_code
        assert (status == 200) is (batch["items"]["minItems"] <= length <= batch["items"]["maxItems"])


def test_answers_models_and_status_have_the_documented_fields_and_no_other(both):
    for encoding in ("float", "base64"):
        answer = both.post("/v1/embeddings", {"input": ["a", "dog"], "encoding_format": encoding}).json()
        check_answer(bodies.OpenaiEmbeddings, answer)
    check_answer(OpenaiModels, both.call("GET", "/v1/models").json())
    for score in both.post("/colours/predict", {"inputs": "a dog"}).json():
        check_answer(Score, score)
    check_answer(TeiError, both.post("/colours/predict", {}).json())
    check_answer(OpenaiErrorAnswer, both.post("/v1/embeddings", {}).json())
    check_answer(bodies.Status, both.call("GET", "/status").json())


def test_the_deadline_may_come_as_a_header_and_the_stream_in_the_path(both):
    page = both.app.openapi()["paths"]
    for path, names in (("/embed", ["x-pliant-deadline"]), ("/{task}/embed", ["task", "x-pliant-deadline"])):
        parameters = page[path]["post"]["parameters"]
        assert [parameter["name"] for parameter in parameters] == names
        assert [parameter["required"] for parameter in parameters] == [name == "task" for name in names]
    assert [parameter["name"] for parameter in page["/{task}/info"]["get"]["parameters"]] == ["task"]
    assert both.post("/meanings/embed", {"inputs": "a dog"}, x_pliant_deadline="5").status_code == 200
    assert both.post("/meanings/embed", {"inputs": "a dog"}, x_pliant_deadline="0").status_code == 422
