"""What the first process of a group tells the others and how it ends them, with pipes whose other ends are held here."""

from __future__ import annotations

import os
import signal
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pliant.errors import WorkerError
from pliant.packing.engine import parallel
from pliant.packing.engine.parallel import ParallelExecutor
from pliant.packing.scheduling.request import Memory, StepPlan
from tests.fixtures.packing.values import is_frozen

MEMORY = Memory(pages=16, page_tokens=8)
GENERATOR: Any = SimpleNamespace(config="{}", precision="bfloat16")


class Local:
    """The first process's own engine, which notes its calls."""

    scheduling, running, pages_used, swap_space = 1.5, 3, 7, "swap space"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failure: Exception | None = None

    def pages_of(self, id: int) -> int:
        return id + 1

    def step(self) -> str:
        self.calls.append(("step",))
        if self.failure is not None:
            raise self.failure
        return "result"

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


class Other:
    """Another process: its end of the pipe, and a sentinel that is ready when it has ended."""

    def __init__(self, pid: int) -> None:
        self.pid, self.exitcode, self.stubborn = pid, None, False
        self.ours, self.theirs = Pipe()
        self.sentinel, self._alive = os.pipe()
        self.joined, self.killed = [], 0
        self.theirs.send("")
        self.theirs.send("")

    def end(self, exitcode: int) -> None:
        if self.exitcode is None:
            self.exitcode = exitcode
            os.close(self._alive)

    def join(self, timeout: float | None = None) -> None:
        self.joined.append(timeout)

    def is_alive(self) -> bool:
        return self.stubborn

    def kill(self) -> None:
        self.killed += 1

    def orders(self) -> list[tuple[str, tuple[Any, ...]]]:
        received = []
        while self.theirs.poll():
            received.append(self.theirs.recv())
        return received


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folders of groups; `joined` says of what the first process's engine was made, `destroyed` how often it left."""
    monkeypatch.setattr(parallel.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(parallel, "check", lambda *given: None)
    monkeypatch.setattr(parallel, "load_generator", lambda generator: "model")
    monkeypatch.setattr(parallel, "DETECT_SECONDS", 0.01)
    made = SimpleNamespace(folder=tmp_path, specs=[], joined=[], destroyed=[], initialized=False, local=Local())

    def save(model: Any, folder: str) -> None:
        for name in ("model.safetensors", "config.json", "meeting"):
            (Path(folder) / name).write_text(model)

    def join(spec: Any, rank: int, model: Any) -> Local:
        made.joined.append((rank, model))
        return made.local

    monkeypatch.setattr(parallel, "_save", save)
    monkeypatch.setattr(parallel._GroupSpec, "join", join)
    state = SimpleNamespace(
        is_initialized=lambda: made.initialized, destroy_process_group=lambda: made.destroyed.append(1)
    )
    monkeypatch.setattr(parallel, "distributed", state)
    return made


@pytest.fixture
def group(scratch, monkeypatch):
    """A group of three, whose two others are objects of this process."""
    others = [Other(101), Other(102)]

    def start(group: ParallelExecutor, spec: Any) -> None:
        scratch.specs.append(spec)
        group._pipes, group._processes = [other.ours for other in others], list(others)

    monkeypatch.setattr(ParallelExecutor, "_start", start)
    executor = ParallelExecutor(GENERATOR, MEMORY, processes=3)
    executor.fakes, executor.local = others, scratch.local
    yield executor
    for other in others:
        other.end(0)
        os.close(other.sentinel)


def test_a_group_shares_what_it_needs_and_forgets_the_model_but_not_where_to_meet(group, scratch):
    (folder,) = scratch.folder.iterdir()
    assert folder.name.startswith("pliant-parallel-") and [path.name for path in folder.iterdir()] == ["meeting"]
    assert scratch.specs == [parallel._GroupSpec(str(folder), 3, "cpu", MEMORY, True, None, "bfloat16")]
    assert is_frozen(scratch.specs[0])
    assert scratch.joined == [(0, "model")] and group.others == (101, 102)
    assert (group.scheduling, group.running, group.pages_used, group.swap_space) == (1.5, 3, 7, "swap space")
    assert group.pages_of(4) == 5
    group.check()
    assert group.local.calls == [("check",)] and not group.fakes[0].orders(), "counts are read here alone"


def test_every_call_goes_to_all_the_others_and_is_made_here(group):
    group.enter(4)
    group.add(7, iter([1, 2]), 9, iter([3]), {"seed": 5})
    plan = StepPlan(admitted=(7,))
    group.carry_out(plan)
    assert group.step() == "result"
    group.cancel(7)
    orders = [
        ("enter", (4,)), ("add", (7, (1, 2), 9, (3,), {"seed": 5})), ("carry_out", (plan,)), ("step", ()),
        ("cancel", (7,)),
    ]  # fmt: skip
    assert [other.orders() for other in group.fakes] == [orders, orders]
    assert group.local.calls == [(name, *arguments) for name, arguments in orders]


def test_closing_ends_the_others_and_kills_who_does_not_end(group, scratch):
    group.fakes[1].stubborn = True
    scratch.initialized = True
    with group as entered:
        assert entered is group
    for other in group.fakes:
        with pytest.raises(EOFError):
            other.theirs.recv()
    assert len(group.fakes[0].joined) == 1 and 5 < group.fakes[0].joined[0] <= 10
    assert group.fakes[1].joined[0] <= 10 and group.fakes[1].joined[1:] == [None]
    assert [other.killed for other in group.fakes] == [0, 1]
    assert scratch.destroyed == [1] and not list(scratch.folder.iterdir())
    assert group.local.calls == [("close",)] and group.others == ()
    group.close()
    assert group.local.calls == [("close",), ("close",)] and group.pages_used == 7, "counts can still be read"
    with pytest.raises(WorkerError, match=r"^another process of the group has ended$"):
        group.step()


def test_a_failed_iteration_is_told_with_its_error_and_ends_the_group(group, scratch):
    group.local.failure = RuntimeError("a sum is lost")
    with pytest.raises(WorkerError, match=r"^an iteration over several processes failed: a sum is lost$") as caught:
        group.step()
    assert caught.value.__cause__ is group.local.failure
    assert group.others == () and not list(scratch.folder.iterdir())


@pytest.mark.parametrize(
    ("exitcode", "report", "failure"),
    [
        (-9, "", "another process of the group has ended: it was killed (signal 9)"),
        (1, "MemoryError: no room", "another process of the group has ended: MemoryError: no room"),
        (1, "", "an iteration over several processes failed: a sum is lost"),
    ],
)
def test_how_another_process_ended_is_told_where_it_is_known(group, exitcode, report, failure):
    last = group.fakes[1]
    if report:
        last.theirs.send(report)
    last.end(exitcode)
    group.local.failure = RuntimeError("a sum is lost")
    with pytest.raises(WorkerError) as caught:
        group.step()
    assert str(caught.value) == failure
    assert group.fakes[0].joined[0] > 1 and group.fakes[1].joined[0] == 0.01, "who ended is waited for first"


def test_an_order_that_does_not_arrive_ends_the_group(group):
    group.fakes[0].theirs.close()
    with pytest.raises(WorkerError, match=r"^another process of the group has ended$") as caught:
        group.carry_out(StepPlan())
    assert isinstance(caught.value.__cause__, OSError)
    assert group.local.calls == [] and group.others == ()
    group.cancel(3)
    assert group.local.calls == [("cancel", 3)], "pages are freed though nobody hears of it"


def test_a_process_has_one_group_at_a_time(scratch):
    scratch.initialized = True
    with pytest.raises(WorkerError, match=r"^this process is in a group of processes already$"):
        ParallelExecutor(GENERATOR, MEMORY, processes=2)
    assert not list(scratch.folder.iterdir())


def test_a_model_that_cannot_be_shared_is_refused_before_anything_is_started(scratch, monkeypatch):
    asked = []
    monkeypatch.setattr(parallel, "check", lambda *given: asked.append(given))
    monkeypatch.setattr(parallel, "_save", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="the disk is full"):
        ParallelExecutor(GENERATOR, MEMORY, False, 0.5, processes=4, device="cuda")
    assert asked == [("{}", 4, "cuda")] and not list(scratch.folder.iterdir()), "nothing is left"


def test_the_others_are_started_with_their_ranks_and_an_end_of_a_pipe_each(scratch, monkeypatch):
    class Process:
        pid = None

        def __init__(self, **options: Any) -> None:
            self.options, self.started = options, 0

        def start(self) -> None:
            self.started += 1
            assert not self.options["args"][2].closed, "it inherits an open pipe"

    methods = []
    context = SimpleNamespace(Pipe=Pipe, Process=Process)
    monkeypatch.setattr(parallel, "get_context", lambda method: methods.append(method) or context)
    group: Any = SimpleNamespace(_pipes=[], _processes=[])
    spec: Any = SimpleNamespace(processes=3)
    ParallelExecutor._start(group, spec)
    assert methods == ["spawn"]
    assert [process.options["args"][:2] for process in group._processes] == [(1, spec), (2, spec)]
    for process, pipe in zip(group._processes, group._pipes, strict=True):
        assert process.options["target"] is parallel._run_follower and process.options["daemon"] is True
        assert process.started == 1 and process.options["args"][2].closed and not pipe.closed
    assert ParallelExecutor.others.fget(group) == (0, 0)


def test_a_member_meets_the_others_takes_its_share_and_makes_its_engine(monkeypatch):
    calls = []
    monkeypatch.setattr(parallel, "FileStore", lambda *given: ("store", *given))
    monkeypatch.setattr(parallel, "init_group", lambda *given: ("mesh", *given))
    monkeypatch.setattr(parallel, "shard", lambda *given: calls.append(given))
    monkeypatch.setattr(parallel, "local_engine", lambda *given: given)
    for sampling in (True, False):
        spec = parallel._GroupSpec("folder", 3, "cuda", MEMORY, sampling, 0.25, "bfloat16", "grammars")
        assert spec.join(2, "model") == ("model", MEMORY, sampling, 0.25, "grammars")
    assert calls == [("model", ("mesh", ("store", "folder/meeting", 3), 2, 3, "cuda"))] * 2


@pytest.fixture
def follower(monkeypatch, tmp_path):
    """Run another process's part here, with what it does at its end noted."""
    notes = SimpleNamespace(signals=[], left=[], destroyed=0, initialized=True, watched=[])
    monkeypatch.setattr(parallel.signal, "signal", lambda *given: notes.signals.append(given))
    monkeypatch.setattr(parallel, "_leave", lambda *given: notes.left.append(given))
    monkeypatch.setattr(parallel, "_end_with_parent", notes.watched.append)

    def destroy() -> None:
        notes.destroyed += 1

    state = SimpleNamespace(is_initialized=lambda: notes.initialized, destroy_process_group=destroy)
    monkeypatch.setattr(parallel, "distributed", state)
    notes.bars = []
    monkeypatch.setattr(parallel.logging, "disable_progress_bar", lambda: notes.bars.append("off"))
    notes.spec = SimpleNamespace(folder=str(tmp_path), precision="bfloat16")
    return notes


@pytest.mark.parametrize("initialized", [True, False])
@pytest.mark.parametrize("error", [EOFError, ConnectionResetError])
def test_another_process_ends_in_peace_when_the_first_has_closed_its_pipe(follower, monkeypatch, error, initialized):
    def follow(rank: int, spec: Any, orders: Any) -> None:
        assert (rank, spec, orders) == (2, follower.spec, "pipe")
        raise error

    follower.initialized = initialized
    monkeypatch.setattr(parallel, "_follow_orders", follow)
    parallel._run_follower(2, follower.spec, "pipe")
    assert follower.left == [(follower.spec.folder, 0)] and follower.destroyed == int(initialized)
    assert follower.signals == [(signal.SIGINT, signal.SIG_IGN)] and follower.bars == ["off"]
    assert follower.watched == [follower.spec.folder]


def test_another_process_that_fails_says_why(follower, monkeypatch):
    def follow(*_: Any) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(parallel, "_follow_orders", follow)
    ours, theirs = Pipe()
    parallel._run_follower(1, follower.spec, theirs)
    assert ours.recv() == "MemoryError: no room" and follower.left == [(follower.spec.folder, 1)]
    ours.close()
    parallel._run_follower(1, follower.spec, theirs)
    assert follower.left == [(follower.spec.folder, 1)] * 2, "also where nobody listens"


def test_another_process_reports_twice_and_does_as_it_is_told(follower, monkeypatch):
    loaded = []

    def load(folder: str, **options: Any) -> Any:
        loaded.append((folder, options))
        return SimpleNamespace(eval=lambda: "model in evaluation")

    monkeypatch.setattr(parallel.AutoModelForCausalLM, "from_pretrained", load)
    local = Local()
    follower.spec.join = lambda rank, model: local if (rank, model) == (2, "model in evaluation") else None
    ours, theirs = Pipe()
    for order in (("enter", (3,)), ("cancel", (8,)), ("step", ())):
        ours.send(order)
    ours.send(None)
    with pytest.raises(TypeError):
        parallel._follow_orders(2, follower.spec, theirs)
    assert [ours.recv(), ours.recv()] == ["", ""] and not ours.poll()
    assert local.calls == [("enter", 3), ("cancel", 8), ("step",)]
    assert loaded == [(follower.spec.folder, {"dtype": torch.bfloat16, "attn_implementation": "sdpa"})]


def test_another_process_ends_with_its_parent(monkeypatch):
    left, waited = [], []
    monkeypatch.setattr(parallel, "_leave", lambda *given: left.append(given))
    monkeypatch.setattr(parallel, "wait", waited.append)
    monkeypatch.setattr(parallel, "parent_process", lambda: None)
    parallel._end_with_parent("folder")
    assert left == waited == []
    monkeypatch.setattr(parallel, "parent_process", lambda: SimpleNamespace(sentinel=5))
    parallel._end_with_parent("folder")
    assert (left, waited) == ([("folder", 1)], [[5]])


def test_leaving_deletes_the_folder_and_says_how_it_went(monkeypatch, tmp_path):
    statuses = []
    monkeypatch.setattr(parallel.os, "_exit", statuses.append)
    (tmp_path / "group").mkdir()
    parallel._leave(str(tmp_path / "group"), 3)
    parallel._leave(str(tmp_path / "group"), 4)
    assert statuses == [3, 4] and not (tmp_path / "group").exists()


@pytest.mark.parametrize("shown", [True, False])
def test_saving_shows_no_progress_and_leaves_it_as_it_was(monkeypatch, shown):
    bars = SimpleNamespace(shown=shown, meanwhile=[])
    words = SimpleNamespace(
        is_progress_bar_enabled=lambda: bars.shown,
        disable_progress_bar=lambda: setattr(bars, "shown", False),
        enable_progress_bar=lambda: setattr(bars, "shown", True),
    )
    monkeypatch.setattr(parallel, "logging", words)

    def save(folder: str) -> None:
        bars.meanwhile.append((folder, bars.shown))
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        parallel._save(SimpleNamespace(save_pretrained=save), "folder")
    assert bars.meanwhile == [("folder", False)] and bars.shown is shown
