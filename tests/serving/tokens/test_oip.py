"""The tokens service through the Open Inference Protocol: tasks that classify the images of a tensor."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from PIL import Image

from pliant.models.image import to_pixels
from pliant.serving.http.oip import routes
from tests.fixtures.documented import check_answer
from tests.fixtures.http.oip import body_of, byte_tensor, error_of, outputs_of, text_tensor
from tests.fixtures.tokens.http import SETTINGS, png
from tests.serving.tokens.test_images import png_header


@pytest.fixture
def settings():
    return SETTINGS.replace(max_images=4)


async def infer(service, fields: object, binary: bytes = b"", path: str = "/v2/models/digits/infer"):
    content, sent = body_of(fields, binary)
    headers = {name.replace("_", "-"): value for name, value in sent.items()}
    return await service.root.post(path, content=content, headers=headers)


async def ask(service, *files: bytes, **parameters):
    entry, data = byte_tensor("image", *files)
    return await infer(service, {"inputs": [entry], "parameters": parameters}, data)


def pixel_tensor(pixels: np.ndarray) -> tuple[dict, bytes]:
    data = pixels.tobytes()
    shape = {"datatype": "UINT8", "shape": list(pixels.shape)}
    return {"name": "image", **shape, "parameters": {"binary_data_size": len(data)}}, data


async def test_files_in_bytes_and_in_base64_get_scores_and_labels(service):
    for response in (
        await ask(service, png(), png()),
        await infer(service, {"inputs": [text_tensor("image", *[base64.b64encode(png()).decode()] * 2)]}),
    ):
        assert outputs_of(response) == {
            "scores": [0.75, 0.125, 0.125] * 2,
            "label": ["zero"] * 2,
            "class": [0, 0],
            "gamma": [0, 0],
            "on_time": [True, True],
        }
        content = response.json()
        assert (content["model_name"], content["model_version"]) == ("digits", "1")
        assert content["parameters"]["run_seconds"] == 0.001 and content["parameters"]["queue_seconds"] >= 0
        check_answer(routes.InferenceAnswer, content)


async def test_pixels_are_read_as_a_file_of_them_is(service):
    seen = []
    decoded = service._state.endpoint._decoders.decode

    async def remember(body, size, left):
        seen.append(await decoded(body, size, left))
        return seen[-1]

    service._state.endpoint._decoders.decode = remember
    pixels = np.arange(20 * 13 * 3, dtype=np.uint8).reshape(20, 13, 3)
    for tensor in (pixels, np.stack([pixels, pixels[::-1]])):
        entry, data = pixel_tensor(tensor)
        assert (await infer(service, {"inputs": [entry]}, data)).status_code == 200
    size = seen[0].shape[0]
    for image, other in zip(seen, (pixels, pixels, pixels[::-1]), strict=True):
        np.testing.assert_array_equal(image, to_pixels(Image.fromarray(np.ascontiguousarray(other)), size))
    by_json = {"name": "image", "datatype": "UINT8", "shape": [20, 13, 3], "data": pixels.tolist()}
    assert (await infer(service, {"inputs": [by_json]})).status_code == 200
    np.testing.assert_array_equal(seen[-1], seen[0])


BAD = [
    ([png(), b"text"], {}, 400, "image[1] is not readable"),
    ([b""], {}, 400, "image[0] is not readable"),
    ([png_header(10_000, 10_000)], {}, 400, "image[0] is of 10000 x 10000 = 100000000 pixels"),
    ([], {}, 400, "image is empty"),
    ([png()] * 5, {}, 413, "image has 5 elements"),
    ([png()], {"deadline": 61}, 400, "deadline is 61"),
    ([png()], {"utility": -1}, 400, "utility is -1"),
    ([png()], {"utility": 0.125}, 429, "the queue is full"),
    ([png()] * 3, {"utility": 0.25}, 503, "deadline is 60 seconds, but waiting and computing would take longer"),
]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("files", "parameters", "status", "sentence"), BAD)
async def test_what_does_not_fit_is_refused_and_the_next_request_served(service, files, parameters, status, sentence):
    response = await ask(service, *files, **parameters)
    assert response.status_code == status and sentence in error_of(response)
    assert ("retry-after" in response.headers) is (status in (429, 503))
    assert (await ask(service, png())).status_code == 200


def pixels_of(shape, values: int, datatype: str = "UINT8"):
    return {"name": "image", "datatype": datatype, "shape": shape, "data": [0] * values}


@pytest.mark.parametrize(
    ("entry", "status", "sentence"),
    [
        (text_tensor("image", "&&&"), 400, "image[0] is '&&&'"),
        (pixels_of([2, 2, 3], 12, "FP32"), 400, "'FP32' [2, 2, 3]"),
        (pixels_of([2, 2, 4], 16), 400, "'UINT8' [2, 2, 4]"),
        (pixels_of([0, 2, 3], 0), 400, "of at least one pixel"),
        (pixels_of([0, 2, 2, 3], 0), 400, "of at least one pixel"),
        (pixels_of([5, 1, 1, 3], 15), 413, "image has 5 elements"),
        (pixels_of([2**40, 0, 0, 3], 0), 413, "image has 1099511627776"),
        ({"name": "picture", "datatype": "BYTES", "shape": [1], "data": ["a"]}, 400, "must be one of image"),
    ],
)
async def test_a_tensor_that_is_no_image_is_refused(service, entry, status, sentence):
    response = await infer(service, {"inputs": [entry]})
    assert response.status_code == status and sentence in error_of(response)


async def test_metadata_are_those_of_the_answers_and_unknown_models_and_versions_are_404(service):
    metadata = (await service.root.get("/v2/models/digits")).json()
    check_answer(routes.ModelMetadata, metadata)
    assert (metadata["versions"], metadata["platform"]) == (["1"], "pliant_tokens")
    assert metadata["inputs"] == [{"name": "image", "datatype": "BYTES", "shape": [-1]}]
    assert metadata["outputs"][0]["parameters"] == {"classes": ["zero", "one", "two"]}
    given = [(entry["name"], entry["datatype"]) for entry in (await ask(service, png())).json()["outputs"]]
    assert given == [(entry["name"], entry["datatype"]) for entry in metadata["outputs"]]
    for path in ("/v2/models/dogs", "/v2/models/digits/versions/2", "/v2/models/dogs/infer"):
        assert (await service.root.get(path)).status_code == (405 if path.endswith("infer") else 404)
    entry, data = byte_tensor("image", png())
    for path in ("/v2/models/dogs/infer", "/v2/models/digits/versions/2/infer"):
        assert (await infer(service, {"inputs": [entry]}, data, path)).status_code == 404
    assert (await infer(service, {"inputs": [entry]}, data, "/v2/models/digits/versions/1/infer")).status_code == 200
    assert (await service.root.get("/v2/health/ready")).status_code == 200
    assert (await service.root.get("/v2")).json()["name"] == "pliant-tokens"
