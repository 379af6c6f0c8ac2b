"""NVIDIA's own client of the Open Inference Protocol, unmodified, against a live service of tokens, cascade or bins."""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from steps import fetch, png, run
from tritonclient.utils import InferenceServerException

TEXTS = ("a dog", "it barks ünd runs", "the large cats sleep")
CODINGS = (None, "gzip", "deflate")

Step = tuple[str, Callable[[], object]]
"""What a step does, and a function that does it: it returns details, and raises if something is wrong."""


class Service:
    """A service by its address, and its client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.host = address.partition("://")[2]
        self.client = triton.InferenceServerClient(self.host)

    def native(self, path: str, body: object) -> Any:
        """The answer of a route of the service's own."""
        return fetch(self.address + path, body)

    def infer(self, model: str, *inputs: triton.InferInput, **options: Any) -> triton.InferResult:
        return self.client.infer(model, list(inputs), **options)


def bins(service: Service, models: list[str]) -> Iterator[Step]:
    """Embed and classify texts."""
    for model in models:
        yield from common(service, model, lambda count, binary: [texts("text", TEXTS[:count], binary)])
        outputs = [output["name"] for output in service.client.get_model_metadata(model)["outputs"]]
        if "embedding" in outputs:
            yield f"embed as /embed does with {model}", lambda model=model: check_embeddings(service, model)
        else:
            yield f"classify as /predict does with {model}", lambda model=model: check_classes(service, model)
            yield f"ask {model} for the best two classes", lambda model=model: check_best(service, model, "text", TEXTS)


def cascade(service: Service, models: list[str]) -> Iterator[Step]:
    """Classify texts by levels."""
    for model in models:
        yield from common(service, model, lambda count, binary: [texts("text", TEXTS[:count], binary)])
        yield f"classify as /v1/predict does with {model}", lambda model=model: check_cascade(service, model)
        yield f"report the label of an answer of {model}", lambda model=model: check_outcome(service, model)
        yield f"ask {model} for the best two classes", lambda model=model: check_best(service, model, "text", TEXTS)


def tokens(service: Service, models: list[str]) -> Iterator[Step]:
    """Classify images."""
    dots = (np.random.default_rng(seed).integers(0, 256, (16, 48), np.uint8) for seed in range(3))
    files = [png([row.tobytes() for row in rows]) for rows in dots]

    def inputs(count: int, binary: bool) -> list[triton.InferInput]:
        given = files[:count] if binary else [base64.b64encode(file) for file in files[:count]]
        return [elements("image", given, binary)]

    for model in models:
        yield from common(service, model, inputs)
        yield f"classify as /v1/predict does with {model}", lambda model=model: check_images(service, model, files)
        yield f"send {model} pixels instead of files", lambda model=model: check_pixels(service, model)


def common(service: Service, model: str, inputs: Callable[[int, bool], list[triton.InferInput]]) -> Iterator[Step]:
    """What is alike for every model. `inputs` gives tensors of so many elements, as bytes or in JSON."""
    client = service.client
    yield "live and ready", lambda: expect(client.is_server_live() and client.is_server_ready(), "yes")
    yield "server metadata", client.get_server_metadata
    yield f"metadata of {model}", lambda: check_metadata(service, model)
    yield f"{model} is ready, another is not", lambda: check_ready(service, model)
    for binary in (True, False):
        for coding in CODINGS:
            what = f"infer {model}, {'binary' if binary else 'JSON'} data, compression {coding}"
            yield what, lambda binary=binary, coding=coding: check_infer(service, model, inputs(2, binary), coding)
    yield f"choose outputs of {model}", lambda: check_outputs(service, model, inputs(2, True))
    yield f"infer {model} asynchronously", lambda: check_async(service, model, inputs)
    yield (
        f"infer {model} with asyncio",
        lambda: in_thread(lambda: asyncio.run(check_asyncio(service, model, inputs(2, True)))),
    )
    yield f"errors of {model}", lambda: check_errors(service, model, inputs)


def elements(name: str, values: list[bytes], binary: bool = True) -> triton.InferInput:
    """A tensor of BYTES."""
    tensor = triton.InferInput(name, [len(values)], "BYTES")
    tensor.set_data_from_numpy(np.array(values, dtype=np.object_), binary_data=binary)
    return tensor


def texts(name: str, values: tuple[str, ...], binary: bool = True) -> triton.InferInput:
    return elements(name, [value.encode() for value in values], binary)


def expect(condition: object, detail: object) -> object:
    if not condition:
        raise AssertionError(detail)
    return detail


def check_metadata(service: Service, model: str) -> object:
    metadata = service.client.get_model_metadata(model)
    same = service.client.get_model_metadata(model, metadata["versions"][0])
    return expect(same == metadata, {"versions": metadata["versions"], "inputs": metadata["inputs"]})


def check_ready(service: Service, model: str) -> object:
    ready = service.client.is_model_ready
    return expect(ready(model) and not ready("no-such-model") and not ready(model, "999"), "yes, no, no")


def check_infer(service: Service, model: str, inputs: list[triton.InferInput], coding: str | None) -> object:
    """All outputs come, as binary data, in the shapes of the metadata."""
    options = {"request_id": "id 7", "timeout": 30_000_000, "parameters": {"deadline": 30.0}}
    coded = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    result = service.infer(model, *inputs, **options, **coded)
    response = result.get_response()
    expect(response["id"] == "id 7" and response["model_name"] == model, response)
    expect({"queue_seconds", "run_seconds"} <= set(response["parameters"]), response)
    shapes = {}
    for output in service.client.get_model_metadata(model)["outputs"]:
        values = result.as_numpy(output["name"])
        shapes[output["name"]] = list(values.shape)
        fits = [size in (-1, real) for size, real in zip(output["shape"], values.shape, strict=True)]
        expect(all(fits) and values.shape[0] == 2, f"{output}: {values.shape}")
    return shapes


def check_outputs(service: Service, model: str, inputs: list[triton.InferInput]) -> object:
    """Outputs come in JSON and as bytes, alike, and only those that are named."""
    names = [output["name"] for output in service.client.get_model_metadata(model)["outputs"]]
    names = [name for name in names if name != "id"]
    everything = service.infer(model, *inputs)
    version = everything.get_response()["model_version"]
    for binary in (True, False):
        chosen = [triton.InferRequestedOutput(name, binary_data=binary) for name in names[::-1]]
        result = service.infer(model, *inputs, outputs=chosen, model_version=version)
        expect([output["name"] for output in result.get_response()["outputs"]] == names[::-1], result.get_response())
        for name in names:
            one, other = result.as_numpy(name), everything.as_numpy(name)
            if one.dtype == np.float32:
                expect(np.allclose(one, other, atol=1e-5), f"{name}: {one} and {other}")
            else:
                expect(
                    [as_text(a) for a in one.ravel()] == [as_text(b) for b in other.ravel()], f"{name}: {one}, {other}"
                )
    return names


def in_thread(step: Callable[[], object]) -> object:
    """Take a step in a thread of its own: asyncio's loop and gevent's, which the other client has, do not share one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(step).result()


def as_text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def check_async(service: Service, model: str, inputs: Callable[[int, bool], list[triton.InferInput]]) -> object:
    """Results are read in turn: until then an answer keeps its connection, of which this client has one."""
    name = service.client.get_model_metadata(model)["outputs"][0]["name"]
    handles = [service.client.async_infer(model, inputs(count, True)) for count in (1, 2, 3)]
    sizes = [handle.get_result().as_numpy(name).shape[0] for handle in handles]
    return expect(sizes == [1, 2, 3], sizes)


async def check_asyncio(service: Service, model: str, inputs: list[triton.InferInput]) -> object:
    async with triton_aio.InferenceServerClient(service.host) as client:
        expect(await client.is_server_ready() and await client.is_model_ready(model), "not ready")
        results = await asyncio.gather(*(client.infer(model, inputs) for _ in range(5)))
        return expect(len(results) == 5, "5 at a time")


def check_errors(service: Service, model: str, inputs: Callable[[int, bool], list[triton.InferInput]]) -> object:
    wrong_type = triton.InferInput(inputs(1, True)[0].name(), [1], "FP32")
    wrong_type.set_data_from_numpy(np.zeros(1, np.float32))
    cases = {
        "another model": (lambda: service.infer("no-such-model", *inputs(1, True)), "404"),
        "another version": (lambda: service.infer(model, *inputs(1, True), model_version="999"), "404"),
        "another datatype": (lambda: service.infer(model, wrong_type), "400"),
        "another input": (lambda: service.infer(model, texts("no-such-tensor", TEXTS)), "400"),
        "another output": (
            lambda: service.infer(model, *inputs(1, True), outputs=[triton.InferRequestedOutput("no-such-tensor")]),
            "400",
        ),
        "a deadline that has passed": (
            lambda: service.infer(model, *inputs(1, True), parameters={"deadline": -1}),
            "400",
        ),
        "no model configuration": (lambda: service.client.get_model_config(model), "404"),
    }
    messages = {}
    for what, (call, status) in cases.items():
        try:
            call()
        except InferenceServerException as error:
            expect(error.status() == status, f"{what}: {error}")
            messages[what] = error.message()
        else:
            raise AssertionError(f"{what} is no error")
    return messages


def check_embeddings(service: Service, model: str) -> object:
    embeddings = service.infer(model, texts("text", TEXTS)).as_numpy("embedding")
    native = np.array(service.native(f"/{model}/embed", {"inputs": list(TEXTS)}), np.float32)
    return expect(np.allclose(embeddings, native, atol=1e-5), f"{embeddings.shape}, within 1e-5")


def check_classes(service: Service, model: str) -> object:
    result = service.infer(model, texts("text", TEXTS))
    native = service.native(f"/{model}/predict", {"inputs": [[text] for text in TEXTS]})
    labels = [as_text(label) for label in result.as_numpy("label")]
    expect(labels == [scores[0]["label"] for scores in native], labels)
    best = result.as_numpy("scores").max(1)
    return expect(np.allclose(best, [scores[0]["score"] for scores in native], atol=1e-5), labels)


def check_best(service: Service, model: str, name: str, values: tuple[str, ...]) -> object:
    """Triton's classification extension."""
    wanted = [triton.InferRequestedOutput("scores", class_count=2)]
    best = service.infer(model, texts(name, values), outputs=wanted).as_numpy("scores")
    result = service.infer(model, texts(name, values))
    labels = [as_text(label) for label in result.as_numpy("label")]
    shown = [[as_text(text) for text in row] for row in best]
    expect(best.shape == (len(values), 2), best.shape)
    return expect([row[0].split(":")[2] for row in shown] == labels, shown)


def check_cascade(service: Service, model: str) -> object:
    result = service.infer(model, texts("text", TEXTS))
    native = service.native("/v1/predict", {"task": model, "texts": list(TEXTS)})["answers"]
    expected = [list(answer["probabilities"].values()) for answer in native]
    expect(np.allclose(result.as_numpy("scores"), expected, atol=1e-4), result.as_numpy("scores").tolist())
    levels = [as_text(level) for level in result.as_numpy("level")]
    return expect(levels == [answer["level"] for answer in native], levels)


def check_outcome(service: Service, model: str) -> object:
    result = service.infer(model, texts("text", TEXTS[:1]))
    id, label = (as_text(result.as_numpy(name)[0]) for name in ("id", "label"))
    taken = service.native("/v1/outcomes", {"id": id, "label": label})
    return expect(taken["correct"], taken)


def check_images(service: Service, model: str, files: list[bytes]) -> object:
    result = service.infer(model, elements("image", files))
    labels = [as_text(label) for label in result.as_numpy("label")]
    for file, label in zip(files, labels, strict=True):
        body = {"image": base64.b64encode(file).decode(), "task": model, "deadline": 30.0}
        native = service.native("/v1/predict", body)
        expect(native["label"] == label, f"{native['label']} and {label}")
    return labels


def check_pixels(service: Service, model: str) -> object:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 20, 13, 3), np.uint8)
    labels = []
    for tensor in (pixels, pixels[0]):
        given = triton.InferInput("image", list(tensor.shape), "UINT8")
        given.set_data_from_numpy(tensor)
        labels.append([as_text(label) for label in service.infer(model, given).as_numpy("label")])
    return expect(labels[0][:1] == labels[1], labels)


SYSTEMS = {"bins": (bins, ["colours", "meanings"]), "cascade": (cascade, ["colours"]), "tokens": (tokens, ["digits"])}
"""The steps of a system, and the models of its registry in the tests."""


def steps_of(given: argparse.Namespace) -> dict[str, Callable[[], object]]:
    system, models = SYSTEMS[given.system]
    return dict(system(Service(given.url), models))


if __name__ == "__main__":
    run(steps_of)
