"""The GPU benchmark, as far as a machine without a GPU can tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.tokens.gpu import GpuConfig, Measured, main, measure, targets

SETTINGS = ("-15", "0", "8", "timm")

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")


def seconds(*rounds: tuple[float, ...]) -> Measured:
    """At batches 1 and 64; only the latter counts for targets."""
    return Measured("some GPU", "random", (1, 64), SETTINGS, np.array([[(1.0,) * 4, row] for row in rounds]))


def test_ratios_are_medians_over_rounds_at_the_largest_batch():
    measured = seconds((0.5, 1.0, 1.2, 2.0), (0.6, 1.2, 1.2, 1.0), (1.0, 1.0, 1.0, 1.0))
    assert (measured.ratio("-15"), measured.ratio("8")) == (2.0, 1.0)
    assert measured.ratio("-15", batch=1) == 1.0
    assert measured.ratio("0", over="timm") == 1.0


@pytest.mark.parametrize(
    ("row", "held"), [((0.5, 1.0, 1.1, 1.0), [True, True]), ((0.6, 1.0, 1.2, 1.0), [False, False])]
)
def test_bars_fall_below_their_limits(row, held):
    assert [bar.met for bar in seconds(row).targets()] == held
    assert all("some GPU" in bar.name for bar in seconds(row).targets())


def test_the_results_file_tells_images_per_second_by_batch_and_setting():
    assert seconds((0.5, 1.0, 2.0, 1.0)).plain()["images_per_second"][64]["-15"] == 128


def test_every_setting_is_measured_at_every_batch():
    measured = measure(GpuConfig("test_vit", batches=(1, 2), rounds=1), device="cpu")
    assert measured.seconds_RBS.shape == (1, 2, len(measured.settings))
    assert (measured.seconds_RBS > 0).all()


@without_gpu
def test_without_a_gpu_there_are_no_bars():
    assert targets() == []


@without_gpu
def test_without_a_gpu_the_command_says_so_in_one_sentence(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
