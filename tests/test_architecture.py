"""Every file keeps the rules of the house (tests/architecture.py), and the rules can be broken."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture import OURS, imports, tree_violations, violations
from tests.fixtures.places import ROOT


def our_files() -> list[str]:
    paths = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test_every_file_keeps_the_rules_of_the_house():
    assert [line for path in our_files() for line in violations(path, (ROOT / path).read_text(encoding="utf-8"))] == []


def test_the_tree_keeps_the_rules_of_the_house():
    assert tree_violations({path: (ROOT / path).read_text(encoding="utf-8") for path in our_files()}) == []


BROKEN = [
    ("serving/driver.py", "from serving import journal", "imports serving.journal, which an installed"),
    ("pliant/report.py", "@dataclass(slots=True)\nclass Report: ...", "lets others change Report"),
    ("registry/store.py", "@dataclass(frozen=True)\nclass Kept: ...", "has a dataclass without slots: Kept"),
    (
        "flows/bins/stages.py",
        "from pliant.flows.cascade import champions",
        "imports flows.cascade.champions of another",
    ),
    ("serving/packing/api.py", "import pliant.tokens.otas", "imports pliant.tokens.otas of another system"),
    ("serving/driver.py", "from pliant.bins import plan", "imports pliant.bins.plan of a system, and stands beside"),
    ("training/texts.py", "def f():\n    import pliant.training.packing.corpus", "imports training.packing.corpus of"),
    ("flows/gate.py", "from pliant.benchmarks import console", "imports benchmarks.console, which is no"),
    ("cli/bins/simulate.py", "from pliant.benchmarks.bins.traces import stable", "imports benchmarks.bins"),
    ("flows/gate.py", "x = system.part('benchmarks', 'bench')", "imports benchmarks.SYSTEM.bench, which is no part"),
    ("serving/launch.py", "x = system.part('flows', 'run')", "imports flows.SYSTEM.run"),
    ("cli/main.py", "import pliant.benchmarks.results", "imports benchmarks.results, which is no part of the product"),
    ("cli/main.py", "from pliant.flows.tokens import run", "imports flows.tokens.run of a system"),
    ("pliant/tokens/otas.py", "import torch", "imports torch outside of pliant/*/model.py"),
    ("pliant/report.py", "def f():\n    import mlflow", "imports mlflow, which a bare GPU machine lacks"),
    ("pliant/tokens/model.py", "from pliant.training import data", "imports training.data"),
    ("pliant/tokens/model.py", "import pydantic", "imports pydantic outside of pliant/settings.py"),
    ("profiling/tokens/accuracy.py", "from pliant.training.data import ImageData", "imports training.data.ImageData"),
    ("registry/codec.py", "from pliant.tokens.artifact import Task", "imports pliant.tokens.artifact.Task"),
    ("serving/driver.py", "import bentoml", "imports bentoml outside of serving/*/service.py"),
    ("serving/driver.py", "from pliant.training import data", "imports training.data"),
    ("flows/tokens/flow.py", "from pliant.serving import driver", "imports serving.driver"),
    ("flows/x.py", "import importlib\nimportlib.import_module('mlflow')", "imports mlflow outside of registry/ml"),
    ("benchmarks/x.py", "from tests.fixtures.tokens import samples", "imports tests.fixtures.tokens.samples"),
    ("tests/registry/test_x.py", "from qa.targets import say", "imports qa.targets.say"),
    ("benchmarks/x.py", "import qa.targets", "imports qa.targets"),
    ("pliant/tokens/scheduler.py", "import time", "is pure but uses time"),
    ("pliant/simulator.py", "from random import shuffle", "is pure but uses random.shuffle"),
    (
        "pliant/bins/planning/plan.py",
        "import numpy as np\nnp.random.shuffle(x)",
        "is pure but uses numpy.random.shuffle",
    ),
    ("pliant/latency.py", "cache = {}", "keeps mutable state in the module: cache"),
    ("serving/driver.py", "seen: set[int] = set()", "keeps mutable state in the module: seen"),
    ("serving/driver.py", "def f():\n    global busy", "keeps mutable state in the module: busy"),
]


@pytest.mark.parametrize(("path", "source", "sentence"), BROKEN)
def test_a_planted_breach_is_found(path, source, sentence):
    assert any(violation.startswith(f"{path} {sentence}") for violation in violations(path, source))


MIXED_UP = [
    (
        {"flows/a.py": "import pliant.flows.b", "flows/b.py": "from pliant.flows.a import x"},
        "imports go round: flows.a",
    ),
    (
        {
            "flows/a.py": "if TYPE_CHECKING:\n    from pliant.flows import b",
            "flows/b.py": "def f():\n    import pliant.flows.a",
        },
        "imports go",
    ),
    ({"serving/x/a.py": "", "tests/serving/y/test_a.py": ""}, "tests/serving/y mirrors no folder"),
]


@pytest.mark.parametrize(("sources", "sentence"), MIXED_UP)
def test_a_planted_disorder_of_the_tree_is_found(sources, sentence):
    assert any(violation.startswith(sentence) for violation in tree_violations(sources))


def test_an_orderly_tree_is_left_alone():
    sources = {
        "flows/a.py": "import pliant.flows.b",
        "flows/b.py": "import pliant.flows",
        "flows/__init__.py": "",
        "tests/flows/test_a.py": "",
    }
    assert tree_violations(sources) == []


KEPT = [
    ("pliant/tokens/runtime.py", "import torch\nimport time"),
    ("pliant/tokens/adaptive.py", "import numpy as np\ndef f(rng: np.random.Generator): ...\nGAMMAS = [1]"),
    (
        "registry/pyfunc/tokens.py",
        "import mlflow\nfrom pliant.tokens import runtime\nfrom pliant.registry import codec",
    ),
    ("registry/codec.py", "from pliant.errors import DigestError\nfrom pliant import errors"),
    ("serving/tokens/service.py", "import bentoml\nfrom pliant.errors import InputError"),
    (
        "benchmarks/x.py",
        "import mlflow, bentoml, prefect, torch\nfrom pliant.training import data\nfrom pliant.flows import x",
    ),
    (
        "cli/main.py",
        "from pliant.serving import driver\nfrom pliant.benchmarks.demo.run import demo\n"
        "from pliant.benchmarks.harness import bench",
    ),
    (
        "qa/trace.py",
        "from tests.fixtures import places\nfrom pliant.flows.tokens import run\nfrom pliant.benchmarks import results",
    ),
    ("cli/tokens/options.py", "from pliant.flows.tokens import run\nfrom pliant.tokens.policies import POLICIES"),
]


@pytest.mark.parametrize(("path", "source"), KEPT)
def test_what_the_house_allows_is_not_reported(path, source):
    assert violations(path, source) == []


def test_an_import_is_found_wherever_it_stands():
    import ast

    source = "if x:\n    import a.b\ndef f():\n    from c import d, e\nfrom . import near"
    assert sorted(imports(ast.parse(source))) == ["a.b", "c.d", "c.e"]


def test_the_checkers_files_are_the_repositorys_files():
    """A folder that is renamed or added must not slip past the rules."""
    folders = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/__init__.py")}
    assert folders == set(OURS)


FRAMEWORKS = ("torch", "timm", "mlflow", "prefect", "bentoml", "datasets", "sklearn", "numba", "onnxruntime", "ray")
DECIDING = ("pliant.systems", "pliant.tokens.scheduler", "pliant.bins.scheduler", "pliant.simulator", "pliant.report")


@pytest.mark.parametrize("module", DECIDING)
def test_deciding_needs_no_framework_to_be_loaded(module):
    """What a syntax tree cannot see: an import of an import."""
    code = f"import sys, {module}; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LACKING = ("prefect", "mlflow", "bentoml", "onnx", "onnxruntime", "onnxscript", "numba", "pandas", "pyarrow")


def test_a_bare_gpu_machine_has_all_that_is_imported_there_before_it_is_used():
    """The benchmarks for GPUs, and of bins what they need."""
    bins = (
        f"pliant.bins.{name}"
        for name in (
            "runtimes.runtime",
            "runtimes.model",
            "runtimes.compile",
            "runtimes.graphs",
            "planning.plan",
            "replay",
        )
    )
    modules = ", ".join(["pliant.benchmarks.tokens.acceptance", "pliant.benchmarks.bins.acceptance", *bins])
    code = f"import sys; sys.modules.update(dict.fromkeys({LACKING!r})); import {modules}"  # importing one raises
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
