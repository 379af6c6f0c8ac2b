"""Every file keeps the rules of the house (tests/architecture.py), and the rules can be broken."""

from __future__ import annotations

import ast
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
    ("flows/bins/stages.py", "from pliant.flows.cascade import x", "imports flows.cascade.x of another"),
    ("training/texts.py", "def f():\n    import pliant.training.packing.x", "imports training.packing.x of a system"),
    ("cli/bins/simulate.py", "from pliant.benchmarks.bins.traces import stable", "imports benchmarks.bins"),
    ("flows/gate.py", "x = system.part('benchmarks', 'bench')", "imports benchmarks.SYSTEM.bench, which is no part"),
    ("cli/main.py", "import pliant.benchmarks.results", "imports benchmarks.results, which is no part of the product"),
    ("serving/launch.py", "x = system.part('flows', 'run')", "imports flows.SYSTEM.run"),
    ("pliant/tokens/otas.py", "import torch", "imports torch outside of pliant/*/model.py"),
    ("pliant/report.py", "def f():\n    import mlflow", "imports mlflow, which a bare GPU machine lacks"),
    ("pliant/tokens/model.py", "from pliant.training import data", "imports training.data"),
    ("profiling/tokens/accuracy.py", "from pliant.training.data import Split", "imports training.data.Split"),
    ("registry/codec.py", "from pliant.tokens.artifact import Task", "imports pliant.tokens.artifact.Task"),
    ("serving/driver.py", "from pliant.training import data", "imports training.data"),
    ("flows/tokens/flow.py", "from pliant.serving import driver", "imports serving.driver"),
    ("flows/x.py", "import importlib\nimportlib.import_module('mlflow')", "imports mlflow outside of registry/ml"),
    ("benchmarks/x.py", "from tests.fixtures import places", "imports tests.fixtures.places"),
    ("tests/registry/test_x.py", "from qa.targets import say", "imports qa.targets.say"),
    ("pliant/tokens/scheduler.py", "from random import shuffle", "is pure but uses random.shuffle"),
    ("pliant/x/plan.py", "import numpy as np\nnp.random.shuffle(x)", "is pure but uses numpy.random.shuffle"),
    ("serving/driver.py", "seen: set[int] = set()", "keeps mutable state in the module: seen"),
    ("serving/driver.py", "def f():\n    global busy", "keeps mutable state in the module: busy"),
]


@pytest.mark.parametrize(("path", "source", "sentence"), BROKEN)
def test_a_planted_breach_is_found(path, source, sentence):
    assert any(violation.startswith(f"{path} {sentence}") for violation in violations(path, source))


MIXED_UP = [
    (
        {"flows/a.py": "import pliant.flows.b", "flows/b.py": "from pliant.flows.a import x"},
        ["imports go round: flows.a"],
    ),
    ({"serving/x/a.py": "", "tests/serving/y/test_a.py": ""}, ["tests/serving/y mirrors no folder"]),
    ({"flows/a.py": "import pliant.flows.b", "flows/b.py": "import pliant.flows", "tests/flows/test_a.py": ""}, []),
]


@pytest.mark.parametrize(("sources", "sentences"), MIXED_UP)
def test_a_planted_disorder_of_the_tree_is_found_and_an_orderly_one_left_alone(sources, sentences):
    violated = tree_violations(sources)
    assert len(violated) == len(sentences)
    assert all(map(str.startswith, violated, sentences))


KEPT = [
    ("pliant/tokens/runtime.py", "import torch\nimport time"),
    ("pliant/tokens/adaptive.py", "import numpy as np\ndef f(rng: np.random.Generator): ...\nGAMMAS = [1]"),
    (
        "registry/pyfunc/tokens.py",
        "import mlflow\nfrom pliant.tokens import runtime\nfrom pliant.registry import codec",
    ),
    ("serving/tokens/service.py", "import bentoml\nfrom pliant.errors import InputError"),
    ("benchmarks/x.py", "import mlflow, bentoml, torch\nfrom pliant.training import data\nfrom pliant.flows import x"),
    ("cli/main.py", "from pliant.serving import driver\nfrom pliant.benchmarks.harness import bench"),
    ("qa/worlds.py", "from tests.fixtures import places\nfrom pliant.flows.tokens import run"),
]


@pytest.mark.parametrize(("path", "source"), KEPT)
def test_what_the_house_allows_is_not_reported(path, source):
    assert violations(path, source) == []


def test_an_import_is_found_wherever_it_stands():
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
    names = ("runtimes.runtime", "runtimes.model", "runtimes.compile", "runtimes.graphs", "planning.plan", "replay")
    bins = [f"pliant.bins.{name}" for name in names]
    modules = ", ".join(["pliant.benchmarks.tokens.acceptance", "pliant.benchmarks.bins.acceptance", *bins])
    code = f"import sys; sys.modules.update(dict.fromkeys({LACKING!r})); import {modules}"  # importing one raises
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
