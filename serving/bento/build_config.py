"""What is in a bento, and the variables of its image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FOLDER = Path("deploy/bento")  # in the checkout
REQUIREMENTS, SETUP, PAGE = FOLDER / "requirements.txt", FOLDER / "setup.sh", Path("docs/settings.md")
PACKAGES = ("pliant", "registry", "serving")  # what services import of ours
INCLUDE = (*(f"/{package}/**/*.py" for package in PACKAGES), "/serving/packing/vllm/*.txt", "/LICENSE")
EXCLUDE = ("/serving/bento/build*.py",)
PYTHON = "3.11"  # of the image
STATE = "/home/bentoml/state"  # PLIANT_HOME in the image; setup.sh makes it
IMAGE: Mapping[str, str] = {
    "UV_TORCH_BACKEND": "cpu",
    "OMP_NUM_THREADS": "1",
    "PLIANT_HOME": STATE,
    "PLIANT_HOST": "0.0.0.0",
}
"""Variables of the image. Each can be another one when it is built (build argument) or run."""
WRITTEN = "Written by `python -m serving.bento.build`."


def bentofile(system: str) -> Path:
    """Return the path in the checkout of the file that `bentoml build -f` takes."""
    return FOLDER / f"{system}.yaml"


def readme(system: str) -> Path:
    """Return the path in the checkout of the page that becomes the README of the bento."""
    return FOLDER / f"{system}.md"
