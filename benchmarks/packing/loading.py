"""How long a large generator takes to load from its artifact, over reading the file of its weights alone.

A Llama of a billion parameters in bfloat16 with made-up weights is stored in a temporary folder. Then its file is read and
its artifact loaded in turns: verified, parsed, and made a model that is ready to run on the CPU. Nothing is dropped from
the system's cache between them, so what is compared are processors rather than disks; the first round is shown apart.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.results import Target
from benchmarks.timing import seconds_of
from pliant.bfloat16 import BFLOAT16
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import load_generator, shapes
from pliant.progress import Progress, silent
from registry import codec

HEADINGS = ("round", "read s", "load s", "of that verified s", "load over read")
COPIES = 4  # of the weights in memory while they are stored, and while the file is read beside a loaded model
BLOCK = 1 << 20  # made-up numbers, over and over


@dataclass(frozen=True, slots=True)
class LoadingConfig:
    """The shape of a Llama, and how often it is loaded."""

    vocabulary: int = 128_256
    width: int = 2048
    inner: int = 8192
    layers: int = 12
    heads: int = 32
    key_heads: int = 8
    rounds: int = 5

    def json(self) -> str:
        """Return transformers' config.json."""
        from transformers import LlamaConfig

        config = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            tie_word_embeddings=True,
        )
        return str(config.to_json_string(use_diff=False))

    @property
    def parameters(self) -> int:
        per_layer = self.width * (2 * self.width + 2 * self.width * self.key_heads // self.heads + 3 * self.inner + 2)
        return self.vocabulary * self.width + self.layers * per_layer + self.width

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return BFLOAT16.itemsize * self.parameters


QUICK = LoadingConfig()
FULL = LoadingConfig(rounds=15)


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds; `verified` are those of `load` in which the artifact was read, verified and parsed."""

    read: float
    load: float
    verified: float


@dataclass(frozen=True, slots=True)
class Loading:
    parameters: int
    rounds: tuple[Round, ...]

    @property
    def ratio(self) -> float:
        """Median time to load over median time to read, of all rounds but the first."""
        warm = self.rounds[1:]
        return median(each.load for each in warm) / median(each.read for each in warm)

    def targets(self) -> list[Target]:
        name = f"loading {self.parameters / 1e9:.2g} billion parameters of bfloat16 over reading their file"
        return [Target(name, self.ratio, "<=", 2.0, "x")]

    def table(self) -> list[tuple[str, ...]]:
        rows = [(f"{number + 1}", each) for number, each in enumerate(self.rounds)]
        return [
            (name, f"{each.read:.2f}", f"{each.load:.2f}", f"{each.verified:.2f}", f"{each.load / each.read:.2f}")
            for name, each in rows
        ]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def missing(config: LoadingConfig) -> str:
    """Return why there is too little room here; empty if there is enough."""
    disk, memory = shutil.disk_usage(tempfile.gettempdir()).free, _free_memory()
    if disk < 2 * config.size:
        return f"needs {2 * config.size / 1e9:.1f} GB in {tempfile.gettempdir()}, where {disk / 1e9:.1f} GB are free"
    if memory < COPIES * config.size:
        return f"needs {COPIES * config.size / 1e9:.1f} GB of memory, of which {memory / 1e9:.1f} GB are free"
    return ""


def _free_memory() -> int:
    """Return the bytes that a process may take: on Linux also those of the system's cache."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    values = dict(line.split(":", 1) for line in lines)
    return 1024 * int(values["MemAvailable"].split()[0])


def measure(config: LoadingConfig, progress: Progress = silent) -> Loading:
    with tempfile.TemporaryDirectory(prefix="pliant-loading-") as temporary:
        folder = Path(temporary, "generator")
        digest = codec.save(made_up(config), folder)
        progress(1, 1 + config.rounds)
        rounds = []
        for number in range(config.rounds):
            gc.collect()
            read = seconds_of(lambda: (folder / codec.TENSORS).read_bytes())
            rounds.append(_round(read, folder, digest))
            progress(2 + number, 1 + config.rounds)
    return Loading(config.parameters, tuple(rounds))


def _round(read: float, folder: Path, digest: str) -> Round:
    loaded: list[Generator] = []
    verified = seconds_of(lambda: loaded.append(codec.load(Generator, folder, digest)))
    built = seconds_of(lambda: load_generator(loaded[0]))
    return Round(read, verified + built, verified)


def made_up(config: LoadingConfig) -> Generator:
    """Return a generator of this shape, whose weights are one block of numbers over and over."""
    text = config.json()
    ends = (int(json.loads(text)["eos_token_id"]),)
    rng = np.random.default_rng(0)
    # The upper half of a float32 is a bfloat16.
    block = (rng.normal(0, 0.02, BLOCK).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    weights = {name: np.resize(block, shape) for name, shape in shapes(text).items()}
    return Generator("made-up", text, "", "", 2048, ends, "made up", weights)
