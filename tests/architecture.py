"""The rules of DESIGN.md as functions from sources to the rules that they break. Reads syntax trees only.

`violations` judges one file by itself: what it imports and keeps. `tree_violations` judges all files together: circles of
imports, crowded folders, and tests without a folder that they mirror.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter

from pliant import systems

OURS = ("pliant", "training", "profiling", "registry", "serving", "flows", "benchmarks", "cli", "deploy", "tests", "qa")

LINKED = ("training", "profiling", "registry", "serving", "flows", "benchmarks", "cli")
"""Packages of `pliant` that lie beside it. The rules call both the folder and the package `serving`."""

TESTING = ("tests", "qa")
"""Folders that may import and keep anything; nothing else imports them, and tests nothing of qa."""

FOLDER_MAY_IMPORT = {
    "pliant": (),
    "registry": ("pliant",),
    "training": ("pliant",),
    "profiling": ("pliant",),
    "serving": ("pliant", "registry"),
    "flows": ("pliant", "registry", "training", "profiling"),
}
"""What a folder may import of ours besides itself. Those not listed may import all but TESTING."""

WINGS = systems.names()
"""A system's folders, at every stage, import nothing of another system's; what stands beside them knows no system."""

KNOW_THE_SYSTEMS = ("benchmarks/baselines/*", "tests/*", "qa/*")
"""Files beside the wings that may import them."""

MEASURING = {
    "cli/main.py": (
        "benchmarks.demo.run.demo",
        "benchmarks.demo.story.story",
        "benchmarks.harness.bench",
        "benchmarks.parts.PARTS",
    )
}
"""What the product imports of `benchmarks`, by full names: for commands that run them, and for the loads' old words."""

MIRRORED = ("tests/fixtures", "tests/golden")
"""Folders of `tests` that mirror none of ours."""

OFFLINE = ("training/*", "profiling/*")

_MODELS = tuple(f"pliant/*/{name}.py" for name in ("model", "classifier", "attention", "trunk", "states", "runtime"))
_ENGINE = tuple(
    f"pliant/packing/engine/{name}.py" for name in ("sampling", "paged_engine", "page_attention", "grammar")
)

FRAMEWORK_HOMES = {
    "prefect": ("flows/*",),
    "mlflow": ("registry/mlflow_*.py", "registry/pyfunc/*.py"),
    "bentoml": ("serving/*/service.py", "serving/bento/*.py"),
    "torch": (
        *_MODELS,
        *(f"pliant/*/{name}.py" for name in ("execution", "graphs", "compile", "triton_*")),
        "pliant/precision.py",
        "pliant/device.py",
        *_ENGINE,
        *OFFLINE,
        "serving/*device.py",
    ),
    "timm": ("pliant/*/model.py", *OFFLINE),
    "triton": ("pliant/*/triton_*.py",),
    "transformers": (*_MODELS, *_ENGINE, *OFFLINE),
    "numba": ("pliant/*_kernel.py",),
    "onnx": ("pliant/bins/runtimes/compile.py",),
    "onnxruntime": ("pliant/bins/runtimes/onnx_*.py",),
    "ray": ("serving/workers/ray_*.py",),
    "llguidance": ("pliant/packing/engine/grammar.py",),
    "vllm": ("pliant/packing/vllm/adapter.py", "serving/packing/vllm/*.py"),
    "datasets": OFFLINE,
    "pyarrow": OFFLINE,
    "pydantic": (
        *("pliant/settings.py", "pliant/state.py", "pliant/betting.py", "pliant/rollout/*", "pliant/outcomes/*"),
        *("serving/*", "flows/*"),
    ),
    "sklearn": (*OFFLINE, "pliant/cascade/search.py"),
}
"""Where a framework may be imported, besides benchmarks and cli."""

OPTIONAL = ("pandas", "numba", "onnx", "onnxruntime", "triton", "vllm", "llguidance", "pydantic", "pydantic_core")
"""A bare GPU machine lacks them: the files of `pliant` that are their homes are imported by those alone that need them."""
_EVERYWHERE = (
    "numpy",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "PIL",
    "torch",
    "timm",
    "transformers",
    "tokenizers",
    "jinja2",
)
BARE_MACHINE = {
    "pliant": (*_EVERYWHERE, *OPTIONAL),
    "training": (*_EVERYWHERE, "datasets", "pyarrow", "safetensors", "huggingface_hub"),  # it comes with timm
    "profiling": (*_EVERYWHERE, "datasets"),
}
"""All that these folders may need from outside: they run from a checkout on a bare GPU machine."""

PURE_FILES = ("scheduler.py", "plan.py", "adaptive.py", "batched.py", "simulator.py", "protocol.py")
IMPURE_MODULES = ("time", "random", "asyncio", "logging", "datetime", "os", "secrets", "uuid", "threading", "socket")
RANDOM_VALUES = ("Generator",)  # of numpy.random: a type, draws nothing by itself
STATES = (
    *(
        "Batch",
        "Bets",
        "Blocks",
        "Choice",
        "InFlight",
        "InFlightOutput",
        "Lease",
        "Pending",
        "TextInProgress",
        "WorkerSlot",
    ),
    *("Comparison", "Evidence", "Floors", "Groups", "Record", "Reference", "Rollout", "WithoutEach", "_Wealth"),
)
"""Dataclasses that change while several modules use them, and may keep what follows from their fields beside these. Any
other that is not a module's own is frozen."""
READ_ONLY = ("Mapping", "Sequence", "Set", "frozenset", "tuple", "Final", "ClassVar", "TypeAlias")


def violations(path: str, source: str) -> list[str]:
    """Return a sentence for each rule that the file breaks. `path`: relative to the repository, with forward slashes."""
    tree = ast.parse(source)
    outside = [module for module in _full_imports(tree) if module.partition(".")[0] in LINKED]
    sentences = [f"imports {module}, which an installed Pliant has within `pliant` alone" for module in outside]
    if _folder(path) not in TESTING:
        sentences += [sentence for module in imports(tree) for sentence in _judge_import(path, module)]
        sentences += [f"keeps mutable state in the module: {name}" for name in _mutable_globals(tree)]
        sentences += [sentence for module in imports(tree) for sentence in _judge_wing(path, module)]
    if _folder(path) == "tests":
        sentences += [f"imports {module}" for module in imports(tree) if module.startswith("qa.")]
    if _folder(path) in ("pliant", "registry", "serving"):
        sentences += _judge_dataclasses(tree)
    if path.startswith("pliant/") and path.rsplit("/", 1)[-1] in PURE_FILES:
        sentences += [f"is pure but uses {name}" for name in _impurities(tree)]
    return [f"{path} {sentence}" for sentence in dict.fromkeys(sentences)]


def tree_violations(sources: Mapping[str, str]) -> list[str]:
    """Return a sentence for each rule that the files together break. `sources`: of all files, by path."""
    folders = {path.rsplit("/", 1)[0] for path in sources}
    sentences = []
    for folder in sorted(folders):
        mirrors = folder.startswith("tests/") and not folder.startswith(MIRRORED)
        if mirrors and folder.removeprefix("tests/") not in folders:
            sentences.append(f"{folder} mirrors no folder")
    return sentences + [f"imports go round: {' -> '.join(circle)}" for circle in circles(sources)]


def circles(sources: Mapping[str, str]) -> list[list[str]]:
    """Return a circle of modules that import each other, if there is one; imports in functions and for types count."""
    names = {path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in sources}
    graph = {
        name: [target for module in imports(ast.parse(sources[path])) if (target := _known(module, names)) != name]
        for name, path in names.items()
    }
    sorter = TopologicalSorter({name: {target for target in targets if target} for name, targets in graph.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        return [list(error.args[1])]
    return []


def _known(module: str, names: Mapping[str, str]) -> str:
    """Return the module of ours that an import's full name stands for: itself, or the one that holds the name."""
    return next((name for name in (module, module.rpartition(".")[0]) if name in names), "")


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the names of all imports, wherever in the file: `from a import b` gives `a.b`, and `pliant.serving` `serving`.

    `System.part("a", "b")`, which imports a module of every system, gives `a.SYSTEM.b`.
    """
    for module in _full_imports(tree):
        inner = module.removeprefix("pliant.")
        yield inner if inner.partition(".")[0] in LINKED else module


def _full_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name("__import__") | ast.Attribute(attr="import_module"), args=[ast.Constant(name), *_]
            ):
                yield str(name)
            case ast.Call(func=ast.Attribute(attr="part"), args=[ast.Constant(stage), ast.Constant(role)]):
                yield f"pliant.{stage}.SYSTEM.{role}"


def _folder(path: str) -> str:
    return path.split("/", 1)[0].removesuffix(".py")


def _judge_import(path: str, module: str) -> Iterator[str]:
    folder, top = _folder(path), module.split(".", 1)[0]
    if top in OURS:
        if not _may_import_ours(path, folder, module, top):
            yield f"imports {module}"
    elif folder in BARE_MACHINE and top not in (*sys.stdlib_module_names, *BARE_MACHINE[folder]):
        yield f"imports {module}, which a bare GPU machine lacks"
    elif folder not in ("benchmarks", "cli") and not _at_home(path, top):
        yield f"imports {module} outside of {', '.join(FRAMEWORK_HOMES[top])}"


def _judge_wing(path: str, module: str) -> Iterator[str]:
    own, other = _wing(path.removesuffix(".py").replace("/", ".")), _wing(module)
    if module.startswith("benchmarks") and _folder(path) != "benchmarks":
        if module not in MEASURING.get(path, ()):
            yield f"imports {module}, which is no part of the product"
    elif own and other and own != other:
        yield f"imports {module} of another system"
    elif other and not own and not any(fnmatch(path, pattern) for pattern in KNOW_THE_SYSTEMS):
        yield f"imports {module} of a system, and stands beside them"


def _wing(module: str) -> str | None:
    """Return the system whose folder a module of ours lies in, None for one beside those folders."""
    top, *rest = module.removeprefix("registry.pyfunc.").split(".")
    if module.startswith("registry.pyfunc."):  # one file a system
        return top if top in WINGS else None
    return rest[0] if top in OURS and rest and rest[0] in WINGS else None


def _may_import_ours(path: str, folder: str, module: str, top: str) -> bool:
    if path == "pliant/__main__.py":
        return module == "cli.main.main"
    if top == folder or (folder not in FOLDER_MAY_IMPORT and top not in TESTING):
        return True
    if folder == "registry" and not fnmatch(path, "registry/pyfunc/*.py"):
        allowed = ("pliant.bfloat16", "pliant.errors", "pliant.redaction", "pliant.systems", "pliant.temporary")
        return module.startswith(allowed)
    return top in FOLDER_MAY_IMPORT.get(folder, ())


def _at_home(path: str, framework: str) -> bool:
    return framework not in FRAMEWORK_HOMES or any(fnmatch(path, home) for home in FRAMEWORK_HOMES[framework])


def _impurities(tree: ast.AST) -> Iterator[str]:
    for module in imports(tree):
        if module.split(".", 1)[0] in IMPURE_MODULES or module.startswith("numpy.random"):
            yield module
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(value=ast.Name("np" | "numpy"), attr="random"), attr=name):
                if name not in RANDOM_VALUES:
                    yield f"numpy.random.{name}"


def _mutable_globals(tree: ast.Module) -> Iterator[str]:
    """Yield names of lists, dicts and sets that are neither written in capitals nor annotated as read-only."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _is_mutable(value) and not _is_constant(name):
                yield name
            case ast.AnnAssign(target=ast.Name(name), annotation=kind, value=value) if value and _is_mutable(value):
                if not _is_constant(name) and not ast.unparse(kind).startswith(READ_ONLY):
                    yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names


def _judge_dataclasses(tree: ast.Module) -> Iterator[str]:
    """Yield what is wrong with dataclasses: values are frozen, and all have slots."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(func=ast.Name("dataclass"), keywords=keywords):
                    options = {word.arg for word in keywords if getattr(word.value, "value", None) is True}
                    if "frozen" not in options and not node.name.startswith("_") and node.name not in STATES:
                        yield f"lets others change {node.name}: a dataclass that is no state is frozen"
                    if "slots" not in options and node.name not in STATES:
                        yield f"has a dataclass without slots: {node.name}"


def _is_constant(name: str) -> bool:
    return name.isupper() or (name.startswith("__") and name.endswith("__"))


def _is_mutable(value: ast.AST) -> bool:
    match value:
        case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(name)):
            return name in ("list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict", "count")
    return False
