"""The predictor's process beside vLLM answers as the predictor does, and ends when nobody asks any more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pliant.packing.engine.model import load
from pliant.registry import codec
from pliant.serving.packing.engine.vllm_predictor_device import LAST
from tests.fixtures.packing import tiny_llama
from tests.fixtures.packing.published import predictor
from tests.fixtures.places import ROOT

pytestmark = pytest.mark.slow


def test_it_reads_tokens_and_says_what_the_predictor_says_of_their_text(tmp_path):
    artifact = predictor("of no model")
    codec.save(artifact, tmp_path / "predictor")
    tiny_llama.write(tmp_path / "model")
    prompts = {"a": [67, 68, 69], "b": list(range(40, 100)), "long": [70] * (LAST + 50)}
    given = "".join(json.dumps({"name": name, "ids": ids}) + "\n" for name, ids in prompts.items())
    command = [sys.executable, "-m", "pliant.serving.packing.engine.vllm_predictor_device"]
    done = subprocess.run(
        [*command, str(tmp_path / "predictor"), str(tmp_path / "model")],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    ready, *answers = done.stdout.splitlines()
    assert ready == "ready"
    rows = {row["name"]: row for row in map(json.loads, answers)}
    assert rows.keys() == prompts.keys()

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "model/tokenizer.json"))
    texts = [tokenizer.decode(ids[-LAST:], skip_special_tokens=True) for ids in prompts.values()]
    for row, forecast in zip(rows.values(), load(artifact, "cpu").predict(texts), strict=True):
        assert row["tokens"] == pytest.approx(list(forecast.tokens), rel=1e-4)
        assert row["bucket"] == forecast.bucket
