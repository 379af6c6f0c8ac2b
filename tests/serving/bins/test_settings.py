"""The settings of bins say which devices serve and what a request may hold."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.bins.settings import BinsSettings


def test_who_sets_nothing_gets_one_device_in_a_process_of_this_machine():
    settings = BinsSettings()
    assert (settings.policy, settings.workers, settings.least_workers) == ("default", 1, None)
    assert (settings.pool, settings.ray_address, settings.dispatch) == ("processes", "", "completion")
    assert (settings.margin, settings.max_texts) == (0.15, 256)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"least_workers": 2}, "PLIANT_LEAST_WORKERS is 2, but must be at most the workers, 1"),
        ({"least_workers": 0}, "PLIANT_LEAST_WORKERS is 0, but must be positive and finite"),
        ({"workers": 0}, "PLIANT_WORKERS is 0, but must be positive and finite"),
        ({"max_texts": 0}, "PLIANT_MAX_TEXTS is 0, but must be positive and finite"),
        ({"margin": 1.0}, "PLIANT_MARGIN is 1.0, but must be at least 0 and below 1"),
        ({"margin": -0.1}, "PLIANT_MARGIN is -0.1, but must be at least 0 and below 1"),
        ({"pool": "sea"}, "PLIANT_POOL is 'sea', but must be one of processes, ray"),
        (
            {"pool": "ray", "device": "cuda:0, cpu"},
            "PLIANT_DEVICE is cuda:0, cpu, but must be of one kind on Ray's nodes",
        ),
        ({"spare": -1}, "PLIANT_SPARE is -1, but must be 0"),
    ],
)
def test_what_does_not_fit_is_named(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        BinsSettings(**changes)
    assert BinsSettings(workers=3, least_workers=3, max_texts=1, margin=0.0).least_workers == 3
