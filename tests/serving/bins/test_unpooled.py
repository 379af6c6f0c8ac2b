"""Every token has an embedding of its own, if it is wanted, in all engines; sparse embeddings are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pliant.bins.runtimes.model import load_model
from pliant.models.text import Reader
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.bins.endpoint import MAX_UNPOOLED
from tests.fixtures.bins.in_process import MANY, serving
from tests.fixtures.bins.published import LONG, MOST, SHORT, TEXT, encoder, plan, publish_compiled, publish_tiny
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("both"))
    publish_tiny(registry)
    with serving(registry, MANY) as service:
        yield service


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


def test_tokens_have_the_last_hidden_states_whatever_shape_runs_them(both):
    answer = both.post("/meanings/embed_all", {"inputs": [SHORT, TEXT, LONG]})
    check_states(answer)
    assert [len(states) for states in answer.json()] == [int(n) for n in answer.headers["x-pliant-length"].split(",")]
    assert both.post("/embed_all", {"inputs": SHORT}).status_code == 200
    mean = np.mean(both.post("/meanings/embed_all", {"inputs": TEXT}).json()[0], 0)
    (pooled,) = both.post("/meanings/embed", {"inputs": TEXT}).json()
    np.testing.assert_allclose(mean / np.linalg.norm(mean), pooled, atol=1e-5)


def test_pooled_and_unpooled_texts_share_a_launch(both):
    """Eight requests at once are more than one launch, and some launches have both kinds."""

    async def at_once():
        import asyncio

        paths = ["/meanings/embed_all", "/meanings/embed"] * 4
        return await asyncio.gather(*(both.posting(path, {"inputs": [SHORT, SHORT]}) for path in paths))

    unpooled, pooled = hidden_states(SHORT), both.post("/meanings/embed", {"inputs": SHORT}).json()[0]
    for number, answer in enumerate(both.wait(at_once())):
        for row in answer.json():
            np.testing.assert_allclose(row, pooled if number % 2 else unpooled, atol=1e-4)


def test_compiled_files_give_them_too_and_those_of_former_versions_are_refused(tmp_path):
    registry = FolderRegistry(tmp_path / "registry")
    settings = MANY.replace(home=tmp_path / "home")
    publish_compiled(registry, Path(settings.home), "meanings")
    with serving(registry, settings) as service:
        check_states(service.post("/embed_all", {"inputs": [SHORT, TEXT, LONG]}))
        (files,) = [served.bins.files for served in service.present.catalog.streams.values()]
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


def test_more_tokens_than_an_answer_may_hold_are_refused(both):
    refused = both.post("/meanings/embed_all", {"inputs": [LONG] * (MAX_UNPOOLED // MOST + 1)})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
    assert f"but must have at most {MAX_UNPOOLED}, each with an embedding" in refused.json()["error"]
    assert both.post("/meanings/embed_all", {"inputs": [LONG] * 2}).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "status", "kind", "sentence"),
    [
        ("/colours/embed_all", {"inputs": "a"}, 424, "Backend", "Model is not an embedding model"),
        ("/meanings/embed_all", {}, 422, "Validation", "inputs is missing"),
        ("/meanings/embed_all", {"inputs": LONG, "truncate": False}, 413, "Validation", "longer than 40 tokens"),
        ("/meanings/embed_all", {"inputs": "a", "prompt_name": "x"}, 413, "Validation", "prompt_name is 'x'"),
        (
            "/meanings/embed_sparse",
            {"inputs": "a"},
            424,
            "Backend",
            "Model is not an embedding model with SPLADE pooling",
        ),
        (
            "/colours/embed_sparse",
            {"inputs": "a"},
            424,
            "Backend",
            "Model is not an embedding model with SPLADE pooling",
        ),
        ("/other/embed_sparse", {"inputs": "a"}, 404, "Validation", "task is 'other'"),
    ],
)
def test_what_cannot_be_is_refused_in_teis_shape(both, path, fields, status, kind, sentence):
    refused = both.post(path, fields)
    assert (refused.status_code, refused.json()["error_type"]) == (status, kind)
    assert sentence in refused.json()["error"]
