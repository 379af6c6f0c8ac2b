"""The files from which bentos are built: `python -m serving.bento.build` writes them from the settings and the pins.

A bento holds the code of a service and the exact versions of what it needs; models come from the registry when it starts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import serving
from pliant import systems
from pliant.errors import InputError
from serving.bento import build_pages, build_pins
from serving.bento.build_config import (
    EXCLUDE,
    FOLDER,
    IMAGE,
    INCLUDE,
    PAGE,
    PYTHON,
    REQUIREMENTS,
    SETUP,
    WRITTEN,
    bentofile,
    readme,
)
from serving.launch import service_path


def checkout() -> Path:
    """Return the folder of the checkout. Raises `InputError` where Pliant's code lies in no checkout."""
    root = Path(serving.__file__).parents[1]
    if not (root / SETUP).is_file():
        raise InputError("the folder of Pliant's code", root, f"a checkout, with {FOLDER}: bentos are built from one")
    return root


def files(root: Path) -> dict[Path, str]:
    """Return the path in the checkout and the content of each file that this module writes."""
    version = project_version(root)
    texts = {REQUIREMENTS: f"# {WRITTEN}\n{build_pins.pins(root)}", PAGE: build_pages.settings_page()}
    for name in systems.names():
        texts[bentofile(name)] = bentofile_text(name, version)
        texts[readme(name)] = build_pages.bento_page(name)
    return texts


def project_version(root: Path) -> str:
    """Return the version of Pliant in the checkout."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def bentofile_text(system: str, version: str) -> str:
    """Return the bentofile of a system. `version`: Pliant's."""
    variables = "\n".join(f'  - name: {name}\n    value: "{value}"' for name, value in IMAGE.items())
    return f"""# {WRITTEN} In the checkout's folder: bentoml build -f {bentofile(system)}
service: "{service_path(system)}"
description: "file: {readme(system)}"
labels:
  project: pliant
  version: "{version}"
  system: {system}
include:
{_list(INCLUDE)}
exclude:
{_list(EXCLUDE)}
python:
  requirements_txt: {REQUIREMENTS}
  lock_packages: false  # they are exact already, with all that they need
docker:
  distro: debian
  python_version: "{PYTHON}"
  setup_script: {SETUP}
envs:
{variables}
"""


def _list(items: Sequence[str]) -> str:
    return "\n".join(f'  - "{item}"' for item in items)


def main() -> None:
    """Write the files into the checkout."""
    root = checkout()
    for path, text in files(root).items():
        (root / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
