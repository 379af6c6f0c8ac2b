"""The engines of packing that are installed into an environment of their own, for `pliant engine`."""

from __future__ import annotations

import sys
from pathlib import Path

VLLM = """\
vllm: makes a virtual environment with vLLM in PLIANT_HOME/engines/vllm (default: .pliant/engines/vllm), and generates a
text with it. vLLM needs other versions of torch and transformers than Pliant has, so it lives in an environment of its
own, which can import Pliant's decisions; those need numpy alone. For a CPU it takes 0.8 GB of downloads and 3.3 GB of
disk, for CUDA 2.6 and 8.0 GB, and some minutes, in which it says how far it is. Packages come from where pip takes
them: uv, which installs them, is given pip's index-url, extra-index-url and find-links; variables of uv (UV_...) come
first. An environment that is whole is used again; one that is broken, incomplete or of other versions is replaced."""
ENGINES = {"vllm": VLLM}
"""Name -> what `--help` says of it."""


def install(name: str, device: str, python: str | None) -> str:
    """Install the engine, showing progress, and return a sentence on what is there. `device`: auto, cpu or cuda."""
    from flows.progress import stage
    from serving.packing.vllm import install

    del name  # there is one engine
    home = _home()
    install.install(home, install.default_device() if device == "auto" else device, python, stage, _say)
    return describe("vllm")


def describe(name: str) -> str:
    """Return what is installed of the engine, and what is wrong with it, if anything is."""
    from serving.packing.vllm import engine

    home = _home()
    place, sentence = engine.folder(home), engine.missing(home)
    if (present := engine.read(place)) is None:
        return sentence
    versions = ", ".join(f"{package} {number}" for package, number in present.versions.items())
    text = f"{name} for {present.device} in {place}: {versions}, Python {present.python}"
    return f"{text}\n{sentence}" if sentence else text


def remove(name: str) -> str:
    """Remove the engine, and return a sentence that says so."""
    from flows.progress import stage
    from serving.packing.vllm import engine, install

    del name
    home = _home()
    there = install.remove(home, stage)
    return f"Removed {engine.folder(home)}." if there else f"There is nothing to remove in {engine.folder(home)}."


def _home() -> Path:
    from flows import settings

    return settings.read().home


def _say(text: str) -> None:
    print(f"engine: {text}", file=sys.stderr, flush=True)
