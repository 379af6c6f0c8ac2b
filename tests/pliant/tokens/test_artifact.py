"""Which head serves a gamma, and which gamma a rate asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.latency import LatencyTable
from pliant.registry import codec
from pliant.tokens.artifact import Accuracies, Profile, RateRule
from tests.fixtures.tokens.samples import tiny_task


def test_merged_settings_share_the_head_of_gamma_0_and_prompts_have_their_own():
    task = tiny_task("digits", ["zero", "one"], "digest", gammas=(2, 8))
    assert task.head(-20) is task.head(-1) is task.head(0) is task.heads[0]
    assert task.head(2) is task.heads[2] and task.head(8) is task.heads[8]
    with pytest.raises(KeyError):
        task.head(4)


@pytest.mark.parametrize(("rate", "gamma"), [(0.0, 8), (99.9, 8), (100.0, 0), (199.9, 0), (200.0, -20), (1e9, -20)])
def test_a_rate_asks_for_the_gamma_of_its_interval_which_does_not_hold_its_upper_end(rate, gamma):
    assert RateRule(below=(100.0, 200.0), gammas=(8, 0, -20)).gamma(rate) == gamma


MEASURED = replace(
    tiny_task("a", "xy", "digest"),
    accuracy={-5: 0.80, 0: 0.90},
    test_accuracy={-5: 0.79, 0: 0.89},
    half={"bfloat16": Accuracies({-5: 0.77, 0: 0.91}, {-5: 0.76, 0: 0.90})},
)


def test_a_task_has_the_accuracies_of_the_precision_that_it_is_served_in():
    served = MEASURED.served_in("bfloat16")
    assert (served.accuracy, served.test_accuracy) == ({-5: 0.77, 0: 0.91}, {-5: 0.76, 0: 0.90})
    assert served.served_in("bfloat16") == served
    assert MEASURED.served_in("float32") == MEASURED.served_in(None) == MEASURED


def test_artifacts_of_older_versions_are_read():
    """They lack the buckets of their latencies, their precision, and accuracies in others than float32."""
    table = LatencyTable((0,), (1, 2), ((0.1, 0.2),))
    profile = Profile("digest", "cpu", table, ((0.0, 0.0),), ((0, 0),), RateRule((), (0,)))
    for artifact, lacking in ((MEASURED, ("half",)), (profile, ("precision",))):
        files = codec.encode(replace(artifact, **({"half": {}} if lacking == ("half",) else {})))
        document = json.loads(files[codec.VALUES])
        for name in lacking:
            del document["values"][name]
        document["values"].get("latency", {}).pop("buckets", None)
        read = codec.decode(type(artifact), {**files, codec.VALUES: json.dumps(document).encode()}, Path("folder"))
        assert read.half == {} if lacking == ("half",) else (read.precision, read.latency) == (None, table)
