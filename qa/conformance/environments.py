"""Virtual environments of clients, made with uv from the package index, each with its pins and nothing of Pliant.

They lie in a folder of the runner's, beside uv's cache. One is made anew when its pins or the Python change, and used
again otherwise.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

NO_DEPENDENCIES = "--no-deps "
"""What a requirement begins with if it is installed alone."""
_DESCRIPTION = "pins.json"  # written last: an environment without it was never finished
_LIMIT_S = 1800.0
_REASON = 200  # characters
_OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""Setting of pip -> variable of uv."""


class NotInstalledError(Exception):
    """A client cannot be installed; the message says why."""


def python_of(folder: Path, requirements: Sequence[str]) -> Path:
    """Return the Python of the environment in `folder`, made if it is not there. Raises `NotInstalledError`."""
    python = folder / "bin" / "python"
    description = json.dumps({"python": platform.python_version(), "requirements": list(requirements)})
    if (folder / _DESCRIPTION).is_file() and (folder / _DESCRIPTION).read_text() == description:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    cache = folder.parent / "cache"
    _uv(cache, "venv", "--no-project", "--python", sys.executable, str(folder))
    alone = [each.removeprefix(NO_DEPENDENCIES) for each in requirements if each.startswith(NO_DEPENDENCIES)]
    others = [each for each in requirements if not each.startswith(NO_DEPENDENCIES)]
    for options in ([*others], ["--no-deps", *alone]):
        if options[-1:] not in ([], ["--no-deps"]):
            _uv(cache, "pip", "install", "--python", str(python), *options)
    (folder / _DESCRIPTION).write_text(description)
    return python


def _uv(cache: Path, *arguments: str) -> None:
    """Run uv, which is told from where pip installs: it does not read pip's settings."""
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables = {**_index(), **variables, "UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never"}
    variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    if "UV_FIND_LINKS" not in variables:
        variables.setdefault("UV_TORCH_BACKEND", "cpu")  # else torch comes with gigabytes of CUDA
    uv = shutil.which("uv", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}") or "uv"
    try:
        done = subprocess.run(
            [uv, *arguments], env=variables, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"uv does not run or has no end: {type(error).__name__}") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines()]
        said = " ".join(line for line in lines if line.startswith(("error:", "cause:", "╰─▶", "Because", "×")))
        raise NotInstalledError((said or f"uv ended with status {done.returncode}")[:_REASON])


def _index() -> dict[str, str]:
    """Return pip's settings of where packages are, as uv's variables."""
    values = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip does: the best version of all indexes
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for key, value in re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
        if variable := _OF_PIP.get(key):
            values[variable] = ",".join(value.split()) if variable == "UV_FIND_LINKS" else value
    return values
