"""What vLLM is given of a plan: the generator as the folder of a model that it loads, and the memory in pages that it has.

The folder is named by the artifact's digest and written once. Its weights are those of the artifact, in their precision.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import architecture
from pliant.packing.scheduling.request import Memory
from pliant.registry import codec

WEIGHTS = "model.safetensors"
CPU_MULTIPLE = 32  # tokens of a page on a CPU, or several times as many


def write(generator: Generator, folder: Path) -> Path:
    """Write the folder, if it is not there yet, and return it. Raises `WorkerError` where the disk refuses."""
    if (folder / WEIGHTS).is_file():
        return folder
    config = json.loads(generator.config) | {"eos_token_id": list(generator.ends), "dtype": generator.precision}
    config["architectures"] = config.get("architectures") or [architecture(generator.config)]
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": generator.context}
    partial = folder / f"{WEIGHTS}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(generator.tokenizer)
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        partial.write_bytes(codec.write_tensors(dict(generator.weights)))
        partial.replace(folder / WEIGHTS)  # last: what is complete has weights
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise WorkerError(f"the model cannot be written for vLLM to {folder}: {error.strerror or error}") from error
    return folder


def pages_of(memory: Memory, device: str) -> Memory:
    """Return the memory in pages that vLLM has on this device: as many tokens, on a CPU in pages of 32 or a multiple.

    Raises `InputError` for less than one page.
    """
    if device != "cpu" or memory.page_tokens % CPU_MULTIPLE == 0:
        return memory
    size = -(-memory.page_tokens // CPU_MULTIPLE) * CPU_MULTIPLE
    pages = memory.pages * memory.page_tokens // size
    if not pages:
        raise InputError("pages", f"{memory.pages} of {memory.page_tokens} tokens", f"at least {size} tokens in all")
    return Memory(pages, size, 0, memory.step_tokens, memory.sequences)
