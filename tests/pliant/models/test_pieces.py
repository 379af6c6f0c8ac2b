"""A batch that the device lacks memory for is halved until it fits, and no larger one is tried again."""

from __future__ import annotations

import pytest
import torch

from pliant.fallbacks import Collector
from pliant.models.pieces import Pieces

CPU = torch.device("cpu")


class Memory:
    """A device with room for so many payloads; each result is the payload doubled."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, []

    def __call__(self, payloads):
        self.tried.append(len(payloads))
        if len(payloads) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [2 * payload for payload in payloads]


@pytest.mark.parametrize("room", [1, 2, 3, 5, 8])
def test_every_payload_has_its_result_in_order_whatever_fits(room):
    memory = Memory(room)
    assert Pieces(CPU).run(0, "small", list(range(8)), memory, memory) == list(range(0, 16, 2))


def test_the_size_that_fits_is_kept_for_later_batches_of_the_same_key_and_told():
    pieces, memory, collector = Pieces(CPU), Memory(3), Collector()
    pieces.run(5, "small", list(range(8)), memory, memory)
    assert memory.tried == [8, 4, 2, 2, 2, 2]
    assert pieces.fallbacks == ("small runs at most 2 at a time: the device lacked memory for 4",)
    noted = collector.take()
    assert [(fallback.kind, fallback.setting, fallback.batch) for fallback in noted] == [
        ("memory", 5, 4),
        ("memory", 5, 2),
    ]
    memory.tried.clear()
    pieces.run(5, "small", list(range(4)), memory, memory)
    assert memory.tried == [2, 2]
    memory.tried.clear()
    pieces.run(1, "large", list(range(3)), memory, memory)
    assert memory.tried == [3]


def test_where_one_does_not_fit_the_error_is_raised_once_it_was_tried_alone():
    memory = Memory(0)
    with pytest.raises(torch.OutOfMemoryError):
        Pieces(CPU).run(0, "small", [1, 2], memory, memory)
    assert memory.tried == [2, 1]


def test_without_a_lack_of_memory_nothing_is_told_and_other_errors_pass():
    pieces = Pieces(CPU)
    assert pieces.run(0, "small", [1], Memory(1), None) == [2]
    assert pieces.fallbacks == ()

    def broken(payloads):
        raise RuntimeError("another error")

    with pytest.raises(RuntimeError, match="another error"):
        pieces.run(0, "small", [1, 2], broken, broken)


def test_on_a_gpu_what_the_failed_batch_had_allocated_is_given_back_first(monkeypatch):
    emptied, memory = [], Memory(1)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(len(memory.tried)))
    Pieces(torch.device("cuda")).run(0, "small", [1, 2], memory, memory)
    assert emptied == [1]
