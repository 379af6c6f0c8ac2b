"""Writes the files from which bentos are built, and docs/settings.md, from settings and pins: `python -m deploy.bentos`.

A bento holds the code of a service and the exact versions of what it needs; models come from the registry when it starts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy import bento_pins, settings_table
from pliant import systems
from pliant.serving.launch import DRAIN_SECONDS, service_path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("deploy/bento")  # in the checkout
REQUIREMENTS, SETUP, PAGE = FOLDER / "requirements.txt", FOLDER / "setup.sh", Path("docs/settings.md")
INCLUDE = ("/pliant/**/*.py", "/pliant/**/*.html", "/LICENSE")
PYTHON = "3.11"  # of the image
STATE = "/home/bentoml/state"  # PLIANT_HOME in the image; setup.sh makes it
IMAGE: Mapping[str, str] = {
    "UV_TORCH_BACKEND": "cpu",
    "OMP_NUM_THREADS": "1",
    "PLIANT_HOME": STATE,
    "PLIANT_HOST": "0.0.0.0",
}
"""Variables of the image. Each can be another one when it is built (build argument) or run."""
WRITTEN = "Written by `python -m deploy.bentos`."


def bentofile(system: str) -> Path:
    """Return the path in the checkout of the file that `bentoml build` takes."""
    return FOLDER / f"{system}.yaml"


def readme(system: str) -> Path:
    """Return the path in the checkout of the page that becomes the README of the bento."""
    return FOLDER / f"{system}.md"


def files(root: Path) -> dict[Path, str]:
    """Return the path in the checkout and the content of each file that this module writes."""
    version = project_version(root)
    texts = {REQUIREMENTS: f"# {WRITTEN}\n{bento_pins.pins(root)}", PAGE: settings_page()}
    for name in systems.names():
        texts[bentofile(name)] = bentofile_text(name, version)
        texts[readme(name)] = bento_page(name)
    return texts


def project_version(root: Path) -> str:
    """Return the version of Pliant in the checkout."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def bentofile_text(system: str, version: str) -> str:
    """Return the bentofile of a system. `version`: Pliant's."""
    variables = "\n".join(f'  - name: {name}\n    value: "{value}"' for name, value in IMAGE.items())
    return f"""# {WRITTEN} `pliant bento {system}` builds from it.
service: "{service_path(system)}"
description: "file: {readme(system)}"
labels:
  project: pliant
  version: "{version}"
  system: {system}
include:
{_list(INCLUDE)}
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


def bento_page(system: str) -> str:
    """Return the README of a system's bento."""
    listed = next(entry for entry in systems.SYSTEMS if entry.name == system)
    return f"""# {system}: {listed.summary}

A service of Pliant as a bento. {WRITTEN}

{_serving(system)}

## Settings

{settings_table.table(settings_table.rows([system]))}
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    variables = ", ".join(f"`{name}={value}`" for name, value in IMAGE.items())
    return f"""# Settings, bentos, health

{WRITTEN} A test holds it to the code.

## Settings

A setting is an environment variable; under `pliant serve` most are options as well (`--max-waiting`), which win. An unknown
variable that begins with `PLIANT_`, or one of another system, is refused at the start. An empty default: nothing is set.

{settings_table.tables(settings_table.rows(), systems.names())}

## Bentos

`pliant bento SYSTEM` makes a bento: our code and the exact versions of what it needs
([{REQUIREMENTS.name}](../{REQUIREMENTS})), without model, data or cache.

{_serving(settings_table.PLACEHOLDER)}

`bentoml containerize pliant_SYSTEM:latest` makes an image (`pliant bento SYSTEM --containerfile FOLDER` writes its
Dockerfile): Debian with Python {PYTHON}, user `bentoml` (1034), port 3000. With a read-only file system it needs volumes for
`PLIANT_HOME` (`{STATE}`), `BENTOML_HOME` and `/tmp`. It sets {variables}, each of which is a build argument, too;
`UV_TORCH_BACKEND=cu130`
installs torch with CUDA.

## Variables of flows and libraries

Flows and commands read these, `PLIANT_HOME`, `PLIANT_TRUSTED_KEYS` and `MLFLOW_TRACKING_URI`. They may be in a service's
environment:

{settings_table.flows_table()}

Libraries read these:

{settings_table.libraries_table()}

A service sets these where they are not set: {settings_table.quiet_list()}.
"""


def _serving(system: str) -> str:
    return f"""```
PLIANT_REGISTRY_URI=http://127.0.0.1:5000 bentoml serve pliant_{system}:latest
```

serves the champion of that registry (by default that of `MLFLOW_TRACKING_URI`), from any folder. It listens on `PLIANT_HOST`
and `BENTOML_PORT`, by HTTPS with `PLIANT_TLS_CERT` and `PLIANT_TLS_KEY`. `--timeout-graceful-shutdown {DRAIN_SECONDS}` gives
requests up that are not answered {DRAIN_SECONDS} s after a stop.

| path | 200 | 503 |
|---|---|---|
| `/livez`, `/healthz` | the process is sound | it should be restarted |
| `/readyz` | the champion is loaded and a device is up | none is, or packing's engine is silent for 5 s |
| `/metrics` | counters for Prometheus | |

A service that is starting accepts connections, and answers them once its models have run."""


def main() -> None:
    """Write the files into the checkout."""
    for path, text in files(ROOT).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
