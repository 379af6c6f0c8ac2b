"""One tenant with 30 connections to a cascade, or with 64 outputs at once of packing: what another tenant keeps."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from pliant.device import threads
from pliant.models.classifier import module, weights
from pliant.profiling.cascade.latency import LatencyConfig, profile
from qa.targets import Targets, bearer, elsewhere, make_keys, say
from tests.fixtures.cascade import published as cascade
from tests.fixtures.live import running
from tests.fixtures.packing import published as packing

ROUNDS, SECONDS, MANY = 3, 5.0, 30
TEXT = json.dumps({"task": "colours", "text": cascade.SURE, "candidate": "single", "deadline": 5.0}).encode()


def asking(url: str, key: str, path: str, body: bytes, seconds: float) -> list[bool]:
    """Ask again and again on one connection; whether each was answered."""
    answered, end = list[bool](), time.monotonic() + seconds
    headers = {"content-type": "application/json", **bearer(key)}
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        while time.monotonic() < end:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read()
            answered.append(response.status == 200)
    return answered


def rate(url: str, key: str, connections: int, seconds: float) -> float:
    """Return the answers a second on so many connections."""
    with ThreadPoolExecutor(connections) as pool:
        each = [pool.submit(asking, url, key, "/v1/predict", TEXT, seconds) for _ in range(connections)]
        return sum(sum(future.result()) for future in each) / seconds


def wide(task: str, level: str, seed: int = 0, classes=cascade.CLASSES, make=cascade.tiny_classifier):
    """A classifier so large that its device is full, and not HTTP."""
    tiny = make(task, level, seed, classes)
    sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 4}
    config = {**json.loads(tiny.config), **sizes}
    torch.manual_seed(seed)
    return replace(tiny, config=json.dumps(config), weights=weights(module(config)))


def profiled(name: str, digest: str, number: int, level=cascade._level):
    """A level's profile, measured on this machine."""
    config = LatencyConfig(lengths=(8,), batches=(1, 2, 4, 8, 16))
    with threads(1):
        table = profile(wide("colours", name), config)
    return replace(level(name, digest, number), latency=table, importance=table)


def keys(folder) -> dict[str, str]:
    return make_keys(folder / "keys.json", {"ann": "use", "many": "use"})


@pytest.mark.parametrize("full", ["the device", "HTTP"])
def test_another_s_30_connections_leave_a_tenant_of_cascade_its_half(tmp_path, monkeypatch, full):
    if full == "the device":
        monkeypatch.setattr(cascade, "tiny_classifier", wide)
        monkeypatch.setattr(cascade, "_level", profiled)
    cascade.publish_tiny(cascade.MlflowPublisher(tmp_path))
    key, shares = keys(tmp_path), []
    settings = cascade.settings_for(tmp_path, keys_file=tmp_path / "keys.json")
    apart = partial(ProcessPoolExecutor, 1, get_context("spawn"))
    with running(settings, tmp_path) as service, apart() as pool, apart(initializer=elsewhere) as attacking:
        for each in (pool, attacking):
            each.submit(rate, service.url, key["ann"], 2, 3.0).result()
        for number in range(ROUNDS):
            alone = pool.submit(rate, service.url, key["ann"], 1, SECONDS).result()
            attack = attacking.submit(rate, service.url, key["many"], MANY, SECONDS + 3)
            time.sleep(2)
            beside = pool.submit(rate, service.url, key["ann"], 1, SECONDS).result()
            shares.append(beside / (alone / 2))
            say(f"round {number + 1}: {alone:.1f}/s alone, {beside:.1f}/s beside {attack.result():.1f}/s of the other")
    say(f"worst {min(shares):.2f}")
    targets = Targets(f"20 30 connections, where {full} is full")
    targets.at_least("rate over half of that alone, median", float(np.median(shares)), 0.95)
    targets.check()


def test_another_s_64_outputs_make_no_deadline_of_a_tenant_of_packing_late(tmp_path):
    packing.publish_tiny(packing.MlflowPublisher(tmp_path))
    key = keys(tmp_path)
    path, plain = "/v1/completions", {"model": packing.NAME, "prompt": "a dog", "ignore_eos": True}
    flood = json.dumps({**plain, "n": 64, "max_tokens": 40}).encode()
    asks = [json.dumps({**plain, "max_tokens": 8, "deadline": within}).encode() for within in (1.0, 2.0, 5.0, 10.0)]
    settings = packing.settings_for(tmp_path, keys_file=tmp_path / "keys.json")
    with running(settings, tmp_path) as service, ThreadPoolExecutor(8) as pool:

        def share() -> float:
            each = [pool.submit(asking, service.url, key["ann"], path, body, 2 * SECONDS) for body in asks]
            answered = [one for future in each for one in future.result()]
            say(f"{sum(answered)} of {len(answered)} answered")
            return sum(answered) / len(answered)

        alone = share()
        attacks = [pool.submit(asking, service.url, key["many"], path, flood, 2 * SECONDS + 2) for _ in range(3)]
        time.sleep(1)
        beside = share()
        say(f"the other had {sum(sum(attack.result()) for attack in attacks)} requests of 64 outputs answered")
    targets = Targets("20 64 outputs at once")
    targets.at_least("deadlines of 1 s and more answered, alone", alone, 1.0)
    targets.at_least("deadlines of 1 s and more answered, beside", beside, 0.99)
    targets.check()
