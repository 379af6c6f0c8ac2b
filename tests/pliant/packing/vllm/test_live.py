"""vLLM itself with Pliant's decisions: the texts are those of its own scheduler, whatever is decided and happens meanwhile.

They run where an environment of vLLM is found (tests/fixtures/packing/vllm_environment.py), on the distributions.
"""

from __future__ import annotations

import json
import random

import pytest

from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.vllm import journal
from pliant.registry import codec
from tests.fixtures.packing import tiny_llama, vllm_environment
from tests.fixtures.packing.published import predictor
from tests.fixtures.wheels import build, unpack

pytestmark = pytest.mark.slow


SCHEDULER = "pliant.packing.vllm.PliantScheduler"
TIGHT, ROOMY = 30, 400  # pages: the former hold fewer texts than may run
ENGINE = {"max_model_len": 512, "max_num_seqs": 24, "max_num_batched_tokens": 128}
ABORTS = {"7": 5, "20": 30}
LIVE = [(policy, ahead) for policy in POLICIES for ahead in (False, True)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with the model, a predictor and the installed distribution."""
    vllm_environment.needed()
    folder = tmp_path_factory.mktemp("vllm")
    tiny_llama.write(folder / "model")
    codec.save(predictor("of no model"), folder / "predictor")
    (folder / "wheel").mkdir()
    unpack(build(folder / "wheel", "pliant", "pliant-core"), folder / "installed")
    return folder


def requests() -> dict[str, list]:
    """Return prompts, a third of which begin alike, and how each is to be continued: a few by one of two words."""
    rng = random.Random(3)
    common = [rng.randint(3, 258) for _ in range(100)]
    prompts, sampling = [], []
    for number in range(40):
        own = [rng.randint(3, 258) for _ in range(rng.randint(1, 120))]
        prompts.append((common if number % 3 == 0 else []) + own)
        values = {"temperature": 0, "max_tokens": rng.randint(1, 80), "ignore_eos": True}
        if number % 17 == 5:
            values |= {"choice": ["yes", "no"], "ignore_eos": False}
        sampling.append(values | {"extra_args": {"output_tokens": values["max_tokens"]}})
    return {"prompts": prompts, "sampling": sampling}


def order(policy: str | None = None, ahead: bool = True, pages: int = TIGHT, environment=(), **rest):
    values = {**ENGINE, "num_gpu_blocks_override": pages, "async_scheduling": ahead, **rest.pop("engine", {})}
    chosen = {"scheduler": SCHEDULER} if policy else {}
    variables = {"PLIANT_SCHEDULER_POLICY": policy or "", **dict(environment)}
    return {**requests(), "engine": values, "environment": variables, "abort": ABORTS, **chosen, **rest}


def run(place, orders):
    where = {"pythonpath": place / "installed", "given": json.dumps(orders)}
    return vllm_environment.run("vllm_run.py", str(place / "model"), **where)


def texts(result):
    assert "error" not in result, result["error"]
    return {name: text for name, text in result["texts"].items() if name not in ABORTS}


def ended_well(result, own) -> None:
    assert texts(result) == texts(own)
    assert result["ends"] == own["ends"]
    assert result["left"] == [0, 0, 0] and result["unfreed"] == 0.0


@pytest.fixture(scope="module")
def own(place):
    """Return what vLLM's own scheduler gives, twice: texts that differ between the two could not be compared."""
    results = run(place, [order(ahead=False), order(ahead=True)])
    assert texts(results[0]) == texts(results[1])
    return results[0]


@pytest.fixture(scope="module")
def live(place):
    variables = [{"PLIANT_SCHEDULER_JOURNAL": str(place / f"{policy}-{ahead}.jsonl")} for policy, ahead in LIVE]
    orders = [order(*case, environment=each) for case, each in zip(LIVE, variables, strict=True)]
    return dict(zip(LIVE, run(place, orders), strict=True))


@pytest.mark.parametrize(("policy", "ahead"), LIVE)
def test_the_texts_are_those_of_vllms_own_scheduler(live, own, policy, ahead):
    ended_well(live[policy, ahead], own)


@pytest.mark.parametrize(("policy", "ahead"), LIVE)
def test_the_journal_of_a_live_engine_is_decided_the_same_again(place, live, policy, ahead, capsys):
    assert "error" not in live[policy, ahead]
    (decided,) = journal.read(place / f"{policy}-{ahead}.jsonl")
    assert decided.rules.policy == policy and decided.first_difference() is None
    assert journal.main(str(place / f"{policy}-{ahead}.jsonl")) == 0
    assert "decided the same again" in capsys.readouterr().out


REFUSED = {
    "scheduling-policy": {"engine": {"scheduling_policy": "priority"}},
    "chunked prefill": {"engine": {"enable_chunked_prefill": False, "max_num_batched_tokens": 512}},
    "policy": {"environment": {"PLIANT_SCHEDULER_POLICY": "fcfs"}},
    "variable": {"environment": {"PLIANT_SCHEDULER_POLICI": "edf"}},
    "journal": {"environment": {"PLIANT_SCHEDULER_JOURNAL": "/no/such/folder/journal"}},
    # The last one: vLLM cannot start another engine in the process after it.
    "speculative decoding": {
        "engine": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}}
    },
}
HAPPENINGS = {
    "much memory": {"pages": ROOMY},
    "no cache of prefixes": {"engine": {"enable_prefix_caching": False}},
    "a pause and an emptied cache": {"ahead": False, "pause": 20, "reset": 45},
    "the same with a step ahead": {"pause": 20, "reset": 45},
    "the same by past-future": {"policy": "past-future", "pause": 20, "reset": 45},
}


@pytest.fixture(scope="module")
def others(place):
    """Return the results of all other runs by their names: one process, since vLLM takes long to be imported."""
    (place / "broken").mkdir()
    late = order("edf")
    late["sampling"][3] = {**late["sampling"][3], "extra_args": {"deadline": 1e-6}}
    predicting = {"PLIANT_SCHEDULER_PREDICTOR": str(place / "predictor"), "PLIANT_SCHEDULER_WAIT": "60"}
    cases = {
        **{name: order(**{"policy": "default", **case}) for name, case in HAPPENINGS.items()},
        "late": late,
        "predictor": order("default", environment=predicting, loaded=True),
        "broken": order("default", environment={"PLIANT_SCHEDULER_PREDICTOR": str(place / "broken")}),
    }
    return dict(zip(cases, run(place, list(cases.values())), strict=True))


@pytest.fixture(scope="module")
def refused(place):
    orders = [order("default", ahead=False, **case) for case in REFUSED.values()]
    return dict(zip(REFUSED, run(place, orders), strict=True))


def test_forecasts_of_a_predictor_beside_the_engine_are_used(others, own):
    ended_well(others["predictor"], own)
    assert 0.9 * len(own["ends"]) <= others["predictor"]["predicted"] <= len(own["ends"]), "but where there is room"


def test_a_late_request_ends_as_aborted_and_the_others_go_on(others, own):
    result = others["late"]
    assert result["ends"] == {**own["ends"], "3": "abort"}
    assert result["left"] == [0, 0, 0] and result["unfreed"] == 0.0


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_at_the_start_in_a_sentence(refused, name):
    said = refused[name].get("error", "")
    assert said.startswith(f"InputError: {name} is "), refused[name]
    assert ", but must be " in said and "\n" not in said
