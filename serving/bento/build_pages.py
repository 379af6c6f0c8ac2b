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

{build_settings.table(build_settings.rows([system]))}
"""


def settings_page() -> str:
    """Return docs/settings.md."""
    variables = ", ".join(f"`{name}={value}`" for name, value in IMAGE.items())
    return f"""# Settings, bentos, health

{WRITTEN} A test holds it to the code.

## Settings

A setting is an environment variable; under `pliant serve` most are options as well, which win. An unknown variable that
begins with `PLIANT_`, or one of another system, is refused at the start. An empty default means that nothing is set.

{build_settings.tables(build_settings.rows(), systems.names())}

## Bentos

`pliant bento SYSTEM`, or `bentoml build -f {FOLDER}/SYSTEM.yaml` in a checkout, makes a bento: our code and the exact
versions of what it needs ([{REQUIREMENTS.name}](../{REQUIREMENTS})), without model, data or cache.

{_serving(build_settings.PLACEHOLDER)}

`bentoml containerize pliant_SYSTEM:latest` makes an image (`pliant bento SYSTEM --containerfile FOLDER` writes its
Dockerfile): Debian with Python {PYTHON}, user `bentoml` (1034), port 3000. With a read-only file system it needs volumes for
`PLIANT_HOME` (`{STATE}`), `BENTOML_HOME` and `/tmp`. It sets {variables}, each of which is a build argument, too;
`UV_TORCH_BACKEND=cu130`
installs torch with CUDA.

## Variables that are no settings

These may be in a service's environment, which does not read them:

{build_settings.others_table()}

Libraries read these:

{build_settings.libraries_table()}

A service sets these where they are not set: {build_settings.quiet_list()}.
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
