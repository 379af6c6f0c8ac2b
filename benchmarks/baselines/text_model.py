"""What the text services have in common: one embedding model, the body they take, the answer they give.

The model runs as in Pliant's own service (pliant/bins/runtimes/runtime.py: same engine, same compiled files): a comparison
is one of scheduling. Runs in the services' own processes, which learn by two environment variables what to serve and how. A
body is that of text-embeddings-inference with a list, {"inputs": ["..."]}, an answer a list of one vector a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pliant.benchmarks.baselines.model import Artifact
from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.device import AUTO, resolve_device
from pliant.registry import codec
from pliant.serving.bins.endpoint import TokenReader

PATH = "/embed"
WARM_LENGTHS = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class TextSpec:
    """What to serve: the encoder, its compiled files (see `BinsRuntime`), and the same model as transformers stores it."""

    encoder: Artifact
    compiled: str
    files: Mapping[str, str]
    folder: str
    max_length: int  # tokens; more are cut off

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> TextSpec:
        plain = json.loads(text)
        return TextSpec(**{**plain, "encoder": Artifact(**plain["encoder"])})


class TextModel:
    """Texts to vectors, by one thread.

    `engine`: "onnx" or "eager" (plain torch). `most`: texts in a batch, which is padded to its longest.
    """

    def __init__(self, spec: TextSpec, engine: str, most: int = 1) -> None:
        encoder = codec.load(Encoder, Path(spec.encoder.folder), spec.encoder.digest)
        shape = Shape(spec.max_length, most, dynamic=True)
        compiled, files = (Path(spec.compiled), spec.files) if engine == "onnx" else (None, {})
        self._reader = TokenReader(encoder.tokenizer, spec.max_length)
        device = "cpu" if engine == "onnx" else resolve_device(AUTO)
        self._runtime = BinsRuntime(encoder, [shape], engine, compiled, files, device)
        for length in (length for length in WARM_LENGTHS if length <= spec.max_length):
            self.embed(["a " * (length - 2)])

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector a text, in their order."""
        read = [self._reader.read(text) for text in texts]
        outputs = self._runtime.run(0, [(tokens.ids, tokens.types) for tokens in read]).outputs
        return [vector.tolist() for vector in outputs]
