"""vLLM's server under one scheduler and one setting, in its own environment, for as long as a measurement lasts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pliant.benchmarks.places import ROOT
from pliant.errors import WorkerError
from pliant.flows import settings
from pliant.flows.servers import HOST, free_port
from pliant.jsonl import open_log

MODEL = "model"
"""The name by which requests name the served model."""
PYTHON, WEIGHTS = "PLIANT_VLLM_PYTHON", "PLIANT_SMOLLM2"
CLASS = "pliant.packing.vllm.PliantScheduler"
FCFS = "vLLM fcfs"
PAGE_TOKENS = 32
READY_SECONDS, STOP_SECONDS = 300.0, 30.0
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
    """Give the address of a ready server. Raises `WorkerError` where it does not start."""
    port = free_port()
    words, variables = command(engine, contender, port), environment(contender, files)
    with open_log(files.log) as log:
        process = subprocess.Popen(
            words, env=variables, cwd=files.folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"http://{HOST}:{port}"
        _wait(process, url, files.log)
        yield url
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + READY_SECONDS
    while not _is_healthy(url):
        if process.poll() is not None:
            raise WorkerError(f"vLLM's server ended with status {process.returncode} before it was ready; see {log}")
        if time.monotonic() > until:
            raise WorkerError(f"vLLM's server was not ready within {READY_SECONDS:g} s; see {log}")
        time.sleep(0.2)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2.0) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, and after a while everything of its session, which holds the engine's process, too."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
