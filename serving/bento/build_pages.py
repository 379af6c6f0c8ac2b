"""The pages about settings and bentos: docs/settings.md, and the README of each system's bento."""

from __future__ import annotations

from pliant import systems
from serving.bento import build_settings
from serving.bento.build_config import FOLDER, IMAGE, PYTHON, REQUIREMENTS, STATE, WRITTEN
from serving.launch import DRAIN_SECONDS


def bento_page(system: str) -> str:
    """Return the README of a system's bento."""
    listed = next(entry for entry in systems.SYSTEMS if entry.name == system)
    return f"""# {system}: {listed.summary}

A service of Pliant as a bento. {WRITTEN}

{_serving(system)}

## Settings

{build_settings.table(build_settings.rows([system]), [system])}
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    variables = ", ".join(f"`{name}={value}`" for name, value in IMAGE.items())
    return f"""# Settings, bentos, health

{WRITTEN} A test holds it to the code.

A setting is an environment variable. Under `pliant serve` most are options as well
([operations](operations.md#a-running-service)), which win over variables. An unknown variable that begins with `PLIANT_`, or
one of another system, is refused when the service starts. Where there is no default, nothing is set.

{build_settings.table(build_settings.rows(), systems.names())}

## Bentos

`pliant bento SYSTEM`, or `bentoml build -f {FOLDER}/SYSTEM.yaml` in a checkout's folder, makes a bento: our code, the exact
versions of what it needs ([{REQUIREMENTS.name}](../{REQUIREMENTS}), a part of `constraints.txt`), and no
model, data or cache. Its labels name Pliant's version and, if `pliant bento` made it, the commit (`+changed` where files
differ from it).

{_serving(build_settings.PLACEHOLDER)}

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

{build_settings.others_table()}

What libraries read:

{build_settings.libraries_table()}

A service sets these where they are not set: {build_settings.quiet_list()}.
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
