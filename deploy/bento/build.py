"""The files from which bentos are built: `python -m deploy.bento.build` writes them from the settings and the pins.

A bento holds the code of a service and the exact versions of what it needs; models come from the registry when it starts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from cli.bento import FOLDER, bentofile, checkout
from deploy.bento import pins, settings_table
from pliant import systems
from serving.launch import DRAIN_SECONDS, service_path

REQUIREMENTS, SETUP, PAGE = FOLDER / "requirements.txt", FOLDER / "setup.sh", Path("docs/settings.md")
PACKAGES = ("pliant", "registry", "serving")  # what services import of ours
INCLUDE = (*(f"/{package}/**/*.py" for package in PACKAGES), "/LICENSE")
PYTHON = "3.11"  # of the image
STATE = "/home/bentoml/state"  # PLIANT_HOME in the image; setup.sh makes it
IMAGE: Mapping[str, str] = {
    "UV_TORCH_BACKEND": "cpu",
    "OMP_NUM_THREADS": "1",
    "PLIANT_HOME": STATE,
    "PLIANT_HOST": "0.0.0.0",
}
"""Variables of the image. Each can be another one when it is built (build argument) or run."""
WRITTEN = "Written by `python -m deploy.bento.build`."


def files(root: Path) -> dict[Path, str]:
    """Return the path in the checkout and the content of each file that this module writes."""
    version = project_version(root)
    texts = {REQUIREMENTS: f"# {WRITTEN}\n{pins.pins(root)}", PAGE: settings_page()}
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
    included = "\n".join(f'  - "{pattern}"' for pattern in INCLUDE)
    variables = "\n".join(f'  - name: {name}\n    value: "{value}"' for name, value in IMAGE.items())
    return f"""# {WRITTEN} In the checkout's folder: bentoml build -f {bentofile(system)}
service: "{service_path(system)}"
description: "file: {readme(system)}"
labels:
  project: pliant
  version: "{version}"
  system: {system}
include:
{included}
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


def readme(system: str) -> Path:
    """Return the path in the checkout of the page that becomes the README of the bento."""
    return FOLDER / f"{system}.md"


def bento_page(system: str) -> str:
    """Return the README of a system's bento."""
    listed = next(entry for entry in systems.SYSTEMS if entry.name == system)
    return f"""# {system}: {listed.summary}

A service of Pliant as a bento. {WRITTEN}

{_serving(system)}

## Settings

{settings_table.table(settings_table.rows([system]), [system])}
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    variables = ", ".join(f"`{name}={value}`" for name, value in IMAGE.items())
    return f"""# Settings, bentos, health

{WRITTEN} A test holds it to the code.

A setting is an environment variable. Under `pliant serve` most are options as well
([operations](operations.md#a-running-service)), which win over variables. An unknown variable that begins with `PLIANT_`, or
one of another system, is refused when the service starts. Where there is no default, nothing is set.

{settings_table.table(settings_table.rows(), systems.names())}

## Bentos

`pliant bento SYSTEM`, or `bentoml build -f {FOLDER}/SYSTEM.yaml` in a checkout's folder, makes a bento: our code, the exact
versions of what it needs ([{REQUIREMENTS.name}](../{REQUIREMENTS}), a part of `constraints.txt`), and no
model, data or cache. Its labels name Pliant's version and, if `pliant bento` made it, the commit (`+changed` where files
differ from it).

{_serving(settings_table.PLACEHOLDER)}

`bentoml containerize pliant_SYSTEM:latest` makes an image by BentoML's own Dockerfile, and
`pliant bento SYSTEM --containerfile FOLDER` writes that Dockerfile and all that it copies. The image is Debian with Python
{PYTHON}; the service runs as the user `bentoml` (1034), not as root, and listens on port 3000. With a file system that is
read-only it needs volumes for `PLIANT_HOME` (`{STATE}`), `BENTOML_HOME` and `/tmp`. The image sets
{variables}.
Each is a build argument, too: `UV_TORCH_BACKEND=cpu` installs torch without CUDA, another of uv's names, such as `cu130`,
with it. The Dockerfile's text is tested, and images of tokens and bins were built and served once, with
torch of PyPI ([how](deploy.md#what-was-tried-and-what-not)).

## Variables that are no settings

A service may have these variables in its environment, and does not read them:

{settings_table.others_table()}

What libraries read:

{settings_table.libraries_table()}

A service sets these where they are not set: {settings_table.quiet_list()}.
"""


def _serving(system: str) -> str:
    return f"""```
PLIANT_REGISTRY_URI=http://127.0.0.1:5000 bentoml serve pliant_{system}:latest
```

serves the champion of that registry, from any folder; without that variable, of the one of `MLFLOW_TRACKING_URI`. Relative
paths count from the folder where `bentoml serve` is called.
The service listens on `PLIANT_HOST` and `BENTOML_PORT`, by HTTPS where `PLIANT_TLS_CERT` and `PLIANT_TLS_KEY` are set
(absolute paths). BentoML's own options `--host` and `--ssl-certfile` are not needed. With the option
`--timeout-graceful-shutdown {DRAIN_SECONDS}`, requests that are not answered {DRAIN_SECONDS} s after the service was asked
to stop are given up.

| path | 200 | 503 |
|---|---|---|
| `/livez`, `/healthz` | the process is sound | it should be started again |
| `/readyz` | the champion is loaded and a device is up | none is, or packing's engine has outputs and is silent for 5 s |
| `/metrics` | counters for Prometheus; with keys, for the roles `monitor` and `admin` | |

`/livez`, `/readyz` and `/healthz` need no key. A service that is starting accepts connections, and answers them once its
models have run."""


def main() -> None:
    """Write the files into the checkout."""
    root = checkout()
    for path, text in files(root).items():
        (root / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
