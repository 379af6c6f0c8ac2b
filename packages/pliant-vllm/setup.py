"""Packs the modules that Pliant's scheduler in vLLM needs, from the project's own folders: all that it imports of ours."""

import ast
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BEGINNINGS = (
    *(f"pliant.packing.vllm.{path.stem}" for path in sorted((ROOT / "pliant/packing/vllm").glob("[a-z]*.py"))),
    "pliant.serving.packing.engine.vllm_predictor_device",
)


def file(module: str) -> Path | None:
    """Return the file of a module or package of ours; None for other names, such as those within a module."""
    path = ROOT.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def imported(path: Path) -> Iterator[str]:
    """Yield the names of ours that a file imports, wherever in it: those of modules, and perhaps of what is in them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name.split(".")[0] == "pliant")


def closure() -> list[str]:
    """Return the modules that those of BEGINNINGS import, and the packages that they are in."""
    modules, coming = set(), list(BEGINNINGS)
    while coming:
        module = coming.pop()
        path = file(module)
        if path is None or module in modules:
            continue
        modules.add(module)
        coming += [*imported(path), module.rpartition(".")[0]]
    return sorted(name if file(name).name != "__init__.py" else f"{name}.__init__" for name in modules)


if __name__ == "__main__":
    os.chdir(HERE)
    scratch = tempfile.mkdtemp()  # nothing is left among the sources
    setup(
        package_dir={"": os.path.relpath(ROOT, HERE)},
        py_modules=closure(),
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    )
