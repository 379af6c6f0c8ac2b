"""A model over several processes: when it is an error, and how many pages the processes have together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory
from serving.packing.assembly import Maker
from serving.packing.catalog import load_catalog
from serving.packing.engine.spread import check, check_here, spread
from tests.fixtures.packing import published
from tests.fixtures.packing.fakes import FakeWorker
from tests.fixtures.packing.in_process import CONTEXT, QUIET, publish, serving
from tests.fixtures.tokens.http import FolderRegistry

TWO = replace(QUIET, processes=2)


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    return registry


@pytest.fixture
def catalog(registry):
    return load_catalog(registry, "champion")


def test_the_engines_build_says_how_many_processes_share_the_model(registry):
    with serving(registry, TWO) as service:
        assert service.worker.builds[-1].processes == 2
        assert service.complete().status_code == 200
    with serving(registry) as service:
        assert service.worker.builds[-1].processes == 1


def test_several_models_do_not_share_the_same_devices(catalog):
    both = replace(catalog, models={**catalog.models, "songs": catalog.models["tales"]})
    check(QUIET, both)
    with pytest.raises(InputError, match=r"processes is 2, but must be 1 if 2 models are served \(songs, tales\)"):
        check(TWO, both)
    with pytest.raises(InputError, match="must be 1 if 2 models are served"):  # a new champion, beside the first
        Maker(TWO, lambda: 0.0, None, FakeWorker, None).make(1, both)


def test_several_devices_are_not_given_to_several_processes(catalog):
    with pytest.raises(InputError, match="device is cuda:0,cuda:1, but must be cpu or cuda, if 2 processes"):
        check(replace(TWO, device="cuda:0,cuda:1"), catalog)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"processes": 4}, "processes is 4, but must be a divisor of 4 heads, 2 of them with keys of their own"),
        ({"processes": 2, "device": "cuda:1"}, "device is cuda:1, but must be cpu or cuda"),
        ({"processes": 64, "device": "cuda"}, r"processes is 64, but must be at most the \d GPUs of this machine"),
    ],
)
def test_what_model_and_machine_do_not_bear_is_refused_before_serving(tmp_path, changes, sentence):
    registry = FolderRegistry(tmp_path)
    published.publish_tiny(registry)
    catalog = load_catalog(registry, "champion")
    check_here(TWO, catalog)
    with pytest.raises(InputError, match=sentence):
        check_here(replace(QUIET, **changes), catalog)


@pytest.mark.parametrize(
    ("device", "processes", "pages", "expected"),
    [
        ("cpu", 2, 10, 10),
        ("cuda", 1, 10, 10),
        ("cuda", 2, 10, 20),
        ("cuda", 4, 60, 128),  # 4 sequences of the whole context
        ("cuda", 2, 200, 200),
    ],
)
def test_gpus_hold_as_many_times_the_pages_and_main_memory_does_not(catalog, device, processes, pages, expected):
    (served,) = catalog.models.values()
    memory = Memory(pages, 4, host_pages=7, sequences=4)
    planned = replace(served, packing=replace(served.packing, memory=memory))
    found = spread(replace(QUIET, device=device, processes=processes), planned)
    assert found.packing.memory == replace(memory, pages=expected)
    assert found.context == min(CONTEXT, 4 * expected)


def test_one_process_a_model_may_have_several_devices_and_the_machine_is_not_asked(catalog, monkeypatch):
    from pliant.packing.engine import tensor_parallel

    monkeypatch.setattr(tensor_parallel, "check", lambda *_: pytest.fail("one process shares nothing"))
    check_here(replace(QUIET, device="cuda:0,cuda:1"), catalog)
    with pytest.raises(InputError, match="device is cuda:0,cuda:1"):
        check_here(replace(TWO, device="cuda:0,cuda:1"), catalog)


def test_every_model_is_checked_with_the_processes_and_the_device(catalog, monkeypatch):
    from pliant.packing.engine import tensor_parallel

    checked = []
    monkeypatch.setattr(tensor_parallel, "check", lambda *arguments: checked.append(arguments))
    check_here(replace(TWO, device="cuda"), catalog)
    assert checked == [(catalog.models["tales"].generator.config, 2, "cuda")]
