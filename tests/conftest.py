"""What holds for every test, those of qa too: no network, one torch thread, caches in a folder that goes away."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import random
import signal
import sys
import tempfile
import threading
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import settings

CACHE = tempfile.TemporaryDirectory(prefix="pliant-tests-", ignore_cleanup_errors=True)  # goes away at exit

# At import, and so before another conftest imports a library that reads its environment only once.
os.environ["HF_HOME"] = CACHE.name
# Two suites at a time would otherwise unpack the same compiled models into one folder, and read each other's half.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE.name}/inductor"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
# Threads of NumPy's and SciPy's BLAS wait by spinning: beside other tests a fit of 0.5 s takes 15.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

settings.register_profile("pliant", deadline=None, derandomize=True, max_examples=60)
# `make nightly`: other examples each time, and more; --hypothesis-seed, which it prints, gives the same ones again.
settings.register_profile("fresh", deadline=None, derandomize=False, max_examples=300, print_blob=True, database=None)
settings.load_profile(os.environ.get("PLIANT_TEST_EXAMPLES", "pliant"))


HEEDED = (signal.SIGINT, signal.SIGTERM)
LONGEST = (
    *("flows/test_flows", "serving/tokens/test_service", "serving/packing/test_service"),
    *("serving/bins/test_service", "serving/cascade/test_service", "serving/workers/test_ray_workers"),
    *("benchmarks/ledger/test_entries",),
)
"""Files with slow tests that take a minute or more."""


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    import torch

    torch.set_num_threads(1)


def process_as_before():
    """What is changed of the process meanwhile is as it was afterwards, so that no test depends on what others did."""
    import torch

    environment, folder, paths = dict(os.environ), Path.cwd(), list(sys.path)
    threads, interval, factory = torch.get_num_threads(), sys.getswitchinterval(), logging.getLogRecordFactory()
    hooks = sys.excepthook, threading.excepthook
    handlers, collecting = {number: signal.getsignal(number) for number in HEEDED}, gc.isenabled()
    yield
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = paths
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)
    logging.setLogRecordFactory(factory)
    sys.excepthook, threading.excepthook = hooks
    for number, handler in handlers.items():
        signal.signal(number, handler)
    (gc.enable if collecting else gc.disable)()


process_after_test = pytest.fixture(autouse=True)(process_as_before)
process_after_file = pytest.fixture(autouse=True, scope="module")(process_as_before)


async def with_entered(test, arguments):
    """Run an async test. Asynchronous contexts among its fixtures last as long as it does."""
    async with AsyncExitStack() as stack:
        for name, value in arguments.items():
            if isinstance(value, AbstractAsyncContextManager):
                arguments[name] = await stack.enter_async_context(value)
        await test(**arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run an async test on an event loop of its own, which skips the time in which nothing happens if it is marked so."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from tests.fixtures.fakes import run_virtually

    names = inspect.signature(pyfuncitem.obj).parameters
    test = with_entered(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names})
    (run_virtually if pyfuncitem.get_closest_marker("virtual") else asyncio.run)(test)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process a core that this process may use; 0, and so none besides pytest's own, where there is but one.

    One more where slow tests are among them: as often as they compute they wait, for servers to start or time to pass.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting = "not slow" not in config.getoption("markexpr")
    return cores + waiting if cores > 1 else 0


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the files, and the tests of each, in a random order"
    )


@pytest.hookimpl(tryfirst=True)  # pytest then brings together what shares a fixture of a wider scope
def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("shuffle")) is not None:
        shuffle(items, random.Random(seed))
    if "models" in config.getoption("markexpr"):
        mark_models(items)
    if hasattr(config, "workerinput"):  # one of several processes: the longest files first, so that all end together
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        longest = [Path(__file__).parent / f"{name}.py" for name in LONGEST]
        places = {path: place for place, path in enumerate(longest)}
        items.sort(key=lambda item: (item.path not in slow, places.get(item.path, len(places))))


def mark_models(items):
    """Mark the tests that may compute with models. By what they import: a list of names would be out of date at once."""
    from tests.models import may_compute

    computing = {path: may_compute(path) for path in {item.path for item in items}}
    for item in items:
        if computing[item.path]:
            item.add_marker("models")


def shuffle(items, draw):
    """Put the files in a random order, and the tests of each file; all tests of a file stay together."""
    draw.shuffle(items)
    places = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish():
    """What the tests' modules imported stays: later collections of garbage need not look through it again."""
    gc.collect()
    gc.freeze()
