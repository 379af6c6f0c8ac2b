"""vLLM's server under one scheduler and one setting, in its own environment, for as long as a measurement lasts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pliant.benchmarks.places import ROOT
from pliant.flows import servers, settings
from pliant.flows.servers import HOST

MODEL = "model"
"""The name by which requests name the served model."""
PYTHON, WEIGHTS = "PLIANT_VLLM_PYTHON", "PLIANT_SMOLLM2"
CLASS = "pliant.packing.vllm.PliantScheduler"
FCFS = "vLLM fcfs"
PAGE_TOKENS = 32
READY_SECONDS = 300.0
_VARIABLES: Mapping[str, str] = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": str(ROOT),
}


def python() -> Path:
    """Return the interpreter of vLLM's environment, which may not exist."""
    given = os.environ.get(PYTHON)
    return Path(given) if given else settings.read().home / "engines" / "vllm" / "bin" / "python"


def weights(name: str) -> Path:
    """Return the folder of the model, which may not exist."""
    given = os.environ.get(WEIGHTS)
    return Path(given) if given else settings.read().home / "models" / name


def missing(name: str) -> str:
    """Return why vLLM cannot serve the model `name` here; empty if it can."""
    if not python().is_file():
        return f"needs vLLM's environment: {PYTHON} names its interpreter (there is no {python()})"
    if not (weights(name) / "config.json").is_file():
        folder = weights(name)
        return f"needs {name}: make it by shared/tools/make_real_models.py; {WEIGHTS} names its folder, not {folder}"
    return ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a user of vLLM tunes. `tokens`: most of a step."""

    sequences: int
    tokens: int
    chunked: bool = True

    @property
    def title(self) -> str:
        return f"{self.sequences} sequences, {self.tokens} tokens{'' if self.chunked else ', prompts whole'}"


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler and its setting. `policy`: Pliant's; empty for vLLM's own scheduler."""

    name: str
    setting: Setting
    policy: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} ({self.setting.title})"


@dataclass(frozen=True, slots=True)
class Engine:
    """What all contenders have in common. `pages`: of PAGE_TOKENS tokens, one of which vLLM keeps for itself."""

    model: Path
    pages: int
    context: int


@dataclass(frozen=True, slots=True)
class Files:
    """Where a server writes, the folder that it runs in, and the predictor's that Pliant's scheduler reads, if any."""

    log: Path
    folder: Path
    predictor: Path | None = None


def command(engine: Engine, contender: Contender, port: int) -> list[str]:
    """Return the command line of a server."""
    setting = contender.setting
    values = {
        "model": engine.model, "served-model-name": MODEL, "host": HOST, "port": port, "dtype": "float32",
        "block-size": PAGE_TOKENS, "max-model-len": engine.context, "num-gpu-blocks-override": engine.pages,
        "max-num-seqs": setting.sequences, "max-num-batched-tokens": setting.tokens, "uvicorn-log-level": "warning",
        **({"scheduler-cls": CLASS} if contender.policy else {}),
    }  # fmt: skip
    switches = ["--enforce-eager", "--enable-chunked-prefill" if setting.chunked else "--no-enable-chunked-prefill"]
    words = [text for name, value in values.items() for text in (f"--{name}", str(value))]
    return [str(python()), "-m", "vllm.entrypoints.openai.api_server", *words, *switches]


def environment(contender: Contender, files: Files) -> dict[str, str]:
    """Return the variables of a server's process: this one's, without settings of Pliant's scheduler but its own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_SCHEDULER")}
    variables |= _VARIABLES
    if contender.policy:
        variables["PLIANT_SCHEDULER_POLICY"] = contender.policy
        if files.predictor is not None:
            variables["PLIANT_SCHEDULER_PREDICTOR"] = str(files.predictor)
    return variables


@contextmanager
def serving(engine: Engine, contender: Contender, files: Files) -> Iterator[str]:
    """Give the address of a ready server. Raises `PliantError` where it does not start."""
    port = servers.free_port()
    words, variables, url = command(engine, contender, port), environment(contender, files), f"http://{HOST}:{port}"
    with servers.running(
        "vLLM's server", words, variables, f"{url}/health", files.log, folder=files.folder, seconds=READY_SECONDS
    ):
        yield url
