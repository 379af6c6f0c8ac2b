"""Observed lengths are written if the settings say so: only of complete outputs, and within the size limit."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from pliant.flows.packing.learn import read
from pliant.outcomes.files import observed_path
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.serving.packing.engine.observed import ObservedLengths
from tests.fixtures.packing.in_process import QUIET, SAID, publish, serving
from tests.fixtures.tokens.http import FolderRegistry


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def served(tmp_path, **settings):
    registry = FolderRegistry(tmp_path / "registry")
    publish(registry)
    return serving(registry, QUIET.replace(home=tmp_path / "home", **settings))


def test_whole_outputs_are_kept_with_their_forecasts(tmp_path):
    path = observed_path(tmp_path / "home", "tales")
    with served(tmp_path, observe=True) as service:
        service.chat("Tell me")
        service.complete("Tell me", max_tokens=3, temperature=0.5)
        service.complete("Tell me", stop="tea")
        service.complete("Tell me", max_tokens=0)
    assert path.stat().st_mode & 0o777 == 0o600, "its owner alone can read it"
    whole, cut, stopped = lines(path)
    assert (whole["prompt"], whole["finish"], whole["censored"]) == ("Tell me", "end", False)
    assert (whole["forecast"], whole["bucket"], whole["prediction"]) == (list(SAID.tokens), SAID.bucket, "predicted")
    assert len(whole["forecast"]) == len(QUANTILES)
    assert whole["prompt_tokens"] == cut["prompt_tokens"] + 2  # the template's
    assert all(read(path, 10))  # as the flow that retrains reads it
    assert [cut[name] for name in ("tokens", "limit", "finish", "censored", "temperature")] == [
        3,
        3,
        "length",
        True,
        0.5,
    ]
    assert (stopped["finish"], stopped["censored"]) == ("string", False) and stopped["tokens"] < whole["tokens"]


def test_the_torn_line_of_a_killed_service_spoils_no_other(tmp_path):
    path = observed_path(tmp_path / "home", "tales")
    path.parent.mkdir(parents=True)
    path.write_text('{"prompt": "a killed')
    with served(tmp_path, observe=True) as service:
        service.complete("Tell me")
    assert len(read(path, 10)) == 1


def test_the_oldest_go_where_the_bytes_are_used_up(tmp_path):
    path = observed_path(tmp_path / "home", "tales")
    with served(tmp_path, observe=True, observed_bytes=1000) as service:
        for number in range(20):
            service.complete(f"Tell {number}", max_tokens=1)
    former = path.with_suffix(".1.jsonl")
    kept = lines(former) + (lines(path) if path.exists() else [])
    numbers = [int(one["prompt"].split()[1]) for one in kept]
    assert numbers == list(range(numbers[0], 20)) and numbers[0] > 0
    assert former.stat().st_size < 1400


@pytest.mark.parametrize("finish", ["", "cancelled", "failed", "late"])
def test_an_output_that_did_not_end_by_itself_teaches_nothing(tmp_path, finish):
    lengths = ObservedLengths(tmp_path / "tales.jsonl", 10**6)
    lengths.add(SimpleNamespace(output=SimpleNamespace(finish=finish), typical=True), "digest")
    lengths.close()
    assert list(tmp_path.iterdir()) == []


def a_choice(prompt="Tell me", finish="stop", tokens=3, at_stop_string=False) -> SimpleNamespace:
    prompt_fields = SimpleNamespace(tokens=11, limit=40, tenant="acme")
    first = SimpleNamespace(prompt=prompt_fields, sampling=SimpleNamespace(temperature=0.5))
    output = SimpleNamespace(finish=finish, tokens=[7] * tokens, at_stop_string=at_stop_string, first=first)
    forecast = SimpleNamespace(tokens=(1.23456, 2.0), bucket=16, origin="late")
    return SimpleNamespace(prompt=prompt, output=output, forecast=forecast, typical=True)


def test_where_writing_fails_the_log_says_so_once_and_the_rest_is_not_written(tmp_path, caplog):
    (tmp_path / "home").write_text("no folder")
    lengths = ObservedLengths(tmp_path / "home" / "tales.jsonl", 10**6)
    for _ in range(2):
        lengths.add(a_choice(), "digest")
    (tmp_path / "home").unlink()
    lengths.add(a_choice(), "digest")
    lengths.close()
    assert list(tmp_path.iterdir()) == []
    (message,) = caplog.messages
    assert message.startswith(f"observed lengths are no longer written to {tmp_path}/home/tales.jsonl: ")


def test_a_length_that_a_request_alone_has_made_is_not_kept(tmp_path):
    with served(tmp_path, observe=True) as service:
        for fields in (
            {"ignore_eos": True},
            {"min_tokens": 2},
            {"stop_token_ids": [9]},
            {"presence_penalty": 1},
            {"logit_bias": {"5": 1}},
            {"max_tokens": 0, "echo": True},
        ):
            assert service.complete(**fields).status_code == 200
        service.complete("Kept", logprobs=1)
    (line,) = lines(observed_path(tmp_path / "home", "tales"))
    assert line["prompt"] == "Kept"
