"""What holds for every test: no network, one torch thread, caches in a folder that goes away, GPU tests only with a GPU."""

from __future__ import annotations

import gc
import os
import tempfile

import pytest
from hypothesis import settings

CACHE = tempfile.TemporaryDirectory(prefix="pliant-tests-", ignore_cleanup_errors=True)  # goes away at exit

# At import, and so before another conftest imports a library that reads its environment only once.
os.environ["HF_HOME"] = CACHE.name
# Two suites at a time would otherwise unpack the same compiled models into one folder, and read each other's half.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

settings.register_profile("pliant", deadline=None, derandomize=True, max_examples=60)
# `make nightly`: other examples each time, and more; --hypothesis-seed, which it prints, gives the same ones again.
settings.register_profile("fresh", deadline=None, derandomize=False, max_examples=300, print_blob=True, database=None)
settings.load_profile(os.environ.get("PLIANT_TEST_EXAMPLES", "pliant"))


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    import torch

    torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One process a core that this process may use; 0, and so none besides pytest's own, where there is but one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores > 1 else 0


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):  # one of several processes: the longest files first, so that all end together
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
    for marker in ("attack", "chaos", "stack"):
        if marker not in config.getoption("markexpr"):
            lengthy = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=lengthy)
            items[:] = [item for item in items if item not in lengthy]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_collection_finish():
    """What the tests' modules imported stays: later collections of garbage need not look through it again."""
    gc.collect()
    gc.freeze()


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
