"""The GPU benchmark of bins, as far as a machine without a GPU can tell."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks.bins.gpu import CONTENDERS, GpuConfig, Measured, main, measure, requests_of
from pliant.errors import InputError

TINY = {"tiny": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}}

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")


def seconds(graphs, eager=(4.0, 4.0, 4.0), compiled=(2.0, 2.0, 2.0)) -> Measured:
    return Measured("tiny", "some GPU", (10, 20, 30), np.array([graphs, eager, compiled]))


REQUESTS = np.array([3, 10, 11, 30])


def test_a_request_costs_what_the_shortest_bin_that_holds_it_costs():
    measured = seconds((1.0, 2.0, 4.0))
    assert measured.mean("graphs", REQUESTS, (10, 30)) == (1 + 1 + 4 + 4) / 4
    assert measured.mean("graphs", REQUESTS, (30,)) == 4
    assert measured.mean("eager", REQUESTS, (10, 30)) == 4


def test_a_dynamic_request_costs_what_its_own_length_costs():
    measured = seconds((1.0, 1.0, 1.0), eager=(1.0, 3.0, 5.0))
    assert measured.mean("eager", np.array([15, 30, 2]), (30,)) == (2 + 5 + 1) / 3


def test_bins_are_the_best_ones_of_the_staircase():
    assert seconds((1.0, 2.0, 4.0)).edges(REQUESTS, 2) == (10, 30)
    assert seconds((1.0, 1.0, 1.0)).edges(REQUESTS, 3) == (30,)


@pytest.mark.parametrize(("scale", "held"), [(1.0, [True, True]), (1.3, [True, False]), (3.0, [False, False])])
def test_bars_fall_where_the_mean_is_less_than_a_quarter_lower(scale, held):
    targets = seconds((scale * 1.4,) * 3).targets(REQUESTS, 2)
    assert [bar.met for bar in targets] == held
    assert all("some GPU" in bar.name for bar in targets)


def test_every_contender_is_measured_at_every_length(monkeypatch):
    """The model is traced whole, with dynamic shapes, as for a GPU; native code for this processor is not made."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    config = GpuConfig(TINY, step=8, longest=16, rounds=2, warmup=1)
    measured = measure("tiny", config, "cpu", capture=lambda call: call)
    assert measured.lengths == (8, 16)
    assert measured.seconds_CL.shape == (len(CONTENDERS), 2)
    assert (measured.seconds_CL > 0).all()


@pytest.mark.parametrize("lengths", [[], [0, 3], [513]])
def test_lengths_that_no_bin_holds_are_refused(lengths):
    with pytest.raises(InputError, match="lengths"):
        requests_of(np.array(lengths), 512)


@without_gpu
def test_without_a_gpu_the_command_says_so(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out == "skipped: no GPU\n"
