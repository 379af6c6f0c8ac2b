"""Transformers' engine is still built as adapter.py and paged.py assume, and they drive it as planned."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import ContinuousBatchingConfig, MistralConfig, MistralForCausalLM
from transformers.generation.continuous_batching import cb_logits_processors as warpers
from transformers.generation.continuous_batching import continuous_api as api
from transformers.generation.continuous_batching import requests, scheduler

from pliant.errors import InputError, SchedulerError
from pliant.packing.engine import adapter
from pliant.packing.engine.adapter import NAME, ContinuousBatchingEngine, kv_bytes
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.step import StepResult
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from tests.fixtures.packing.generators import HOSTED, SCARCE, generated, prompts, tiny_generator
from tests.fixtures.packing.values import is_frozen

ROW = ["self", "requests_with_new_token"]
METHODS: Mapping[Any, Mapping[str, list[str]]] = {
    scheduler.Scheduler: {
        "reset": ["self"],
        "has_pending_requests": ["self"],
        "add_waiting_request": ["self", "state"],
        "finish_request": ["self", "request_id"],
        "set_request_cancellation": ["self", "request_id"],
        "clear_cancelled_requests": ["self"],
        "schedule_batch": ["self", "token_budget", "cache_budget"],
        "_schedule_request": [
            "self", "state", "request_tokens", "token_budget", "request_ids_to_remove_from_waiting",
        ],
    },
    scheduler.FIFOScheduler: {"__init__": ["self", "cache", "safety_margin", "max_requests_per_batch"]},
    requests.RequestState: {"create_equivalent_initial_request": ["self"], "current_len": ["self"]},
    requests.FutureRequestState: {"__init__": ["self", "state", "has_new_token", "complete_blocks", "query_length"]},
    api.ContinuousBatchProcessor: {
        "prepare_next_batch": ["self"], "_generation_step": ["self", "model"], "update_batch": ["self"],
    },
    api.ContinuousBatchingManager: {"_create_batch_processor": ["self"], "warmup": ["self"]},
    api.ContinuousMixin: {
        "init_continuous_batching": [
            "self", "generation_config", "continuous_batching_config", "workload_hints",
        ],
    },
    warpers.ContinuousBatchingTemperatureLogitsWarper: {"prepare_tensor_args": ROW},
    warpers.ContinuousBatchingTopKLogitsWarper: {"prepare_tensor_args": ROW},
    warpers.ContinuousBatchingTopPLogitsWarper: {"prepare_tensor_args": ROW},
    warpers.ContinuousBatchingLogitsProcessorList: {
        "__init__": ["self", "logits_processor", "per_request_processors", "drop_unsupported_processors"],
    },
}  # fmt: skip
"""Methods that are called or overridden, with the names of their parameters."""

STATE = (
    "request_id", "initial_tokens", "generated_tokens", "max_new_tokens", "eos_token_id", "logit_processor_kwargs",
    "tokens_to_process", "remaining_prefill_tokens", "position_offset", "allocated_blocks", "is_cpu_offloaded",
    "_status", "_true_initial_tokens",
)  # fmt: skip
SETTINGS = (
    "num_blocks", "max_batch_tokens", "max_requests_per_batch", "allow_block_sharing", "use_async_batching",
    "use_cuda_graph", "scheduler_type", "safety_margin", "cpu_offload_space",
)  # fmt: skip
PARTS = {
    "batch_processor": (
        "scheduler", "cache", "offloading_manager", "inputs_and_outputs", "output_router", "logit_processor",
    ),
    "batch_processor.scheduler": (
        "active_requests", "waiting_requests", "_requests_to_cancel", "_requests_to_fork", "starved_requests",
    ),
    "batch_processor.inputs_and_outputs": ("requests_in_batch", "compute_stream"),
    "batch_processor.offloading_manager": ("free_request_cpu_cache",),
    "batch_processor.cache": ("free_blocks", "num_blocks"),
}  # fmt: skip
"""Attributes that are read or set on the engine's objects."""
NEWER = {
    "batch_processor.offloading_manager": ("_cpu_pool", "_cpu_views"),
    "batch_processor.cache": (
        "pool", "can_store_request_tokens", "bytes_per_sector", "cache_tensor", "max_decode_fast_path_length",
    ),
    "batch_processor.cache.pool": ("num_free_sectors", "count_free_blocks", "set_blocks_per_sector"),
}  # fmt: skip
ALLOCATOR = ("layer_type", "block_table", "index", "blocks_per_sector", "bytes_per_block", "_copy_view")
OLDER = {
    "batch_processor.cache": (
        "group_cache_managers", "num_sliding_attention_groups", "key_cache", "value_cache", "get_num_free_blocks",
        "allocate_blocks",
    ),
    "batch_processor.scheduler": ("max_decode_fast_path_length",),
}  # fmt: skip


def changed_methods(methods: Mapping[Any, Mapping[str, list[str]]]) -> list[str]:
    """Return one sentence for each method that has changed."""
    changes = []
    for owner, expected in methods.items():
        for name, parameters in expected.items():
            method = getattr(owner, name, None)
            actual = None if method is None else list(inspect.signature(method).parameters)
            if actual != parameters:
                changes.append(f"{owner.__name__}.{name} takes {actual}, not {parameters}")
    return changes


def lacking(root: Any, names_by_path: Mapping[str, tuple[str, ...]]) -> list[str]:
    missing = []
    for path, names in names_by_path.items():
        owner = root
        for name in path.split("."):
            owner = getattr(owner, name)
        missing += [f"{path}.{name} is missing" for name in names if not hasattr(owner, name)]
    return missing


def batching(memory: Memory = HOSTED, **more: Any) -> ContinuousBatchingEngine:
    torch.set_num_threads(1)
    return ContinuousBatchingEngine(load_generator(tiny_generator()), memory, **more)


def test_the_engine_is_built_as_we_take_it_to_be() -> None:
    engine = batching()
    newer = hasattr(engine._processor.cache, "cache_allocators")
    changed = changed_methods(METHODS)
    state = requests.RequestState("0", [1])
    changed += [f"RequestState.{name} is missing" for name in STATE if not hasattr(state, name)]
    settings = {field.name for field in fields(ContinuousBatchingConfig)}
    size = "page_size" if newer else "block_size"
    changed += [f"ContinuousBatchingConfig.{name} is missing" for name in (*SETTINGS, size) if name not in settings]
    changed += lacking(engine._manager, PARTS) + lacking(engine._manager, NEWER if newer else OLDER)
    if newer:
        (only,) = engine._processor.cache.cache_allocators.values()
        changed += [f"the cache allocator's {name} is missing" for name in ALLOCATOR if not hasattr(only, name)]
    statuses = [status.name for status in requests.RequestStatus]
    if statuses != ["PENDING", "PREFILLING", "DECODING", "FINISHED", "FAILED"]:
        changed.append(f"RequestStatus is {statuses}")
    assert not changed, "transformers' continuous batching has changed: " + "; ".join(changed)
    engine.close()


def test_a_change_would_be_named() -> None:
    class Scheduler:
        def reset(self, hard: bool) -> None: ...

    changes = changed_methods({Scheduler: {"reset": ["self"], "finish_request": ["self"]}})
    assert changes == [
        "Scheduler.reset takes ['self', 'hard'], not ['self']",
        "Scheduler.finish_request takes None, not ['self']",
    ]
    assert lacking(SimpleNamespace(a=SimpleNamespace(b=1)), {"a": ("b", "c")}) == ["a.c is missing"]


def test_our_scheduler_is_registered_for_the_time_of_creation_only() -> None:
    before = dict(scheduler.SCHEDULER_MAPPING)
    batching()
    assert before == scheduler.SCHEDULER_MAPPING
    assert NAME not in before


def test_exactly_the_chosen_leave_and_come_back_with_their_pages() -> None:
    engine, texts = batching(), prompts(3, seed=1)
    for id, ids in enumerate(texts):
        engine.add(id, ids, 12, (), {})
    tokens: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def go(plan: StepPlan) -> list[int]:
        engine.carry_out(plan)
        step = engine.step()
        engine.check()
        for id, token, _ in step.tokens:
            tokens[id].append(token)
        return sorted(id for id, *_ in step.tokens)

    first = len(texts[0]) - 1
    chunks = (Chunk(0, first), Chunk(1, len(texts[1])))
    assert go(StepPlan(admitted=(0, 1, 2), prefill_chunks=chunks)) == [1], (
        "0 has a token to read, 2 none of its own yet"
    )
    assert go(StepPlan(prefill_chunks=(Chunk(0, 1),))) == [0, 1]
    assert go(StepPlan(prefill_chunks=(Chunk(2, len(texts[2])),), stalled=(0,))) == [1, 2]
    pages = [engine.pages_of(id) for id in range(3)]
    assert pages[:2] == [SCARCE.need(len(texts[0])), SCARCE.need(len(texts[1]) + 2)]
    assert go(StepPlan(offloaded=(1,))) == [0, 2]
    assert (engine.pages_of(1), engine.swap_space.used) == (0, pages[1])
    assert go(StepPlan(discarded=(0,))) == [2]
    assert engine.pages_of(0) == 0
    assert go(StepPlan(admitted=(1,), stalled=(1,))) == [2], "back, but not in this iteration"
    assert (engine.pages_of(1), engine.swap_space.used) == (pages[1], 0)
    assert go(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, len(texts[0]) + 2),))) == [0, 1, 2]
    for _ in range(9):
        go(StepPlan())
    assert engine.pages_used == 0
    whole = generated(replace(tiny_generator(), ends=(63,)), texts, limit=12)
    assert [tuple(tokens[id]) for id in range(3)] == whole
    assert not any(63 in text for text in whole), "nothing ended before its limit"


def test_who_is_dropped_leaves_nothing_behind() -> None:
    engine, texts = batching(), prompts(2, seed=1)
    for id, ids in enumerate(texts):
        engine.add(id, ids, 12, (), {})
    engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, len(texts[0])),)))
    engine.step()
    assert engine.pages_used > 0
    engine.carry_out(StepPlan(dropped=((0, "late"), (1, "late"))))
    assert engine.pages_used == 0 and not engine._states
    engine.check()


def test_one_that_is_being_read_can_leave_too() -> None:
    for leave in ("offloaded", "discarded"):
        engine, ids = batching(), prompts(1, seed=2)[0]
        engine.add(0, ids, 3, (), {})
        engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, 2),)))
        assert engine.step().started == (0,)
        engine.carry_out(StepPlan(**{leave: (0,)}))
        read = 2 if leave == "offloaded" else 0
        step = engine.step()
        assert (step.sequences, step.preempted) == (0, ((0, 2 - read),))
        engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, len(ids) - read),)))
        tokens = [engine.step().tokens[0][1]]
        for _ in range(2):
            engine.carry_out(StepPlan())
            tokens.append(engine.step().tokens[0][1])
        assert tuple(tokens) == generated(tiny_generator(), [ids], limit=3)[0]


def test_transformers_own_scheduler_gets_memory_on_the_host_without_an_accelerator() -> None:
    engine = batching(margin=0.0)
    if not hasattr(engine._processor.offloading_manager, "_cpu_views"):
        pytest.skip("this version of the engine computes again what it preempts")
    for id, ids in enumerate(prompts(12)):
        engine.add(id, ids, 20, (), {})
    preempted = [victim for _ in range(400) for victim in engine.step().preempted]
    assert preempted
    assert all(again == 0 for _, again in preempted)
    assert not engine._states
    engine.check()


def test_pages_that_are_not_free_are_our_own_fault() -> None:
    engine = batching(replace(SCARCE, pages=2))
    engine.add(0, range(12), 3, (), {})
    with pytest.raises(SchedulerError, match="3 pages"):
        engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, 12),)))


def test_a_page_is_at_least_what_the_engine_takes() -> None:
    with pytest.raises(InputError, match="page_tokens is 3"):
        batching(replace(SCARCE, page_tokens=3))


def test_a_model_with_a_window_is_refused() -> None:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=8, max_position_embeddings=64,
    )  # fmt: skip
    with pytest.raises(InputError, match="full in every layer"):
        ContinuousBatchingEngine(MistralForCausalLM(config).eval(), SCARCE)


def test_a_token_takes_so_many_bytes() -> None:
    model = load_generator(tiny_generator())
    engine = ContinuousBatchingEngine(model, SCARCE)
    assert kv_bytes(model) == 2 * 2 * 2 * 8 * 4
    views = engine._cache.views()
    assert sum(view[0].numel() * view.element_size() for view in views) == kv_bytes(model) * SCARCE.page_tokens


def outline(device: str = "cpu", dtype: torch.dtype = torch.float16, **sizes: Any) -> Any:
    """Return what is read of a model before it runs: 3 layers of 4 heads of 16, unless told otherwise."""
    config = SimpleNamespace(**{"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 64} | sizes)
    return SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: config), dtype=dtype, device=torch.device(device)
    )


def test_the_bytes_of_a_token_count_the_heads_that_have_keys_and_the_width_that_is_told() -> None:
    assert kv_bytes(outline()) == 2 * 3 * 4 * 16 * 2
    assert kv_bytes(outline(num_key_value_heads=None, head_dim=None)) == 2 * 3 * 4 * 16 * 2
    assert kv_bytes(outline(num_key_value_heads=2)) == 2 * 3 * 2 * 16 * 2
    assert kv_bytes(outline(head_dim=10, dtype=torch.float32)) == 2 * 3 * 4 * 10 * 4


@pytest.mark.parametrize(
    ("device", "margin", "graph", "space"),
    [
        ("cpu", None, False, 0.0),
        ("cpu", 0.25, False, 0.0),
        ("cuda", None, None, 0.0),
        ("cuda", 0.25, None, 30 * 8 * 768 / 2**30),  # only transformers' own scheduler swaps by itself
        ("cuda", 0.0, None, 30 * 8 * 768 / 2**30),
    ],
)
def test_the_engine_is_set_up_for_the_memory_the_device_and_who_decides(device, margin, graph, space) -> None:
    memory = Memory(pages=20, page_tokens=8, host_pages=30, step_tokens=64, sequences=100)
    settings = adapter._settings(outline(device), memory, margin)
    size = "page_size" if hasattr(settings, "page_size") else "block_size"
    names = [name for name in SETTINGS if name != "cpu_offload_space"]
    assert [getattr(settings, name) for name in (size, *names)] == [
        8, 20, 64, 64, False, False, graph, NAME, margin or 0.0,
    ]  # fmt: skip
    assert settings.cpu_offload_space == pytest.approx(space)
    assert adapter._settings(outline(device), replace(memory, sequences=9), margin).max_requests_per_batch == 9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_flash_attention_is_taken_in_half_precision_alone(dtype) -> None:
    settings = adapter._settings(outline("cuda", dtype), Memory(4, 16), 0.0)
    if not hasattr(settings, "auto_switch_to_flash"):
        pytest.skip("this version takes flash attention only where it is asked to")
    assert settings.auto_switch_to_flash == (dtype != torch.float32)


def read(*states: tuple[int, int, int], longest: int = 10, newer: bool = True) -> Any:
    """Let the planned scheduler give its batch: of each request its tokens in the cache, to read later, and to read."""
    holder = SimpleNamespace(max_decode_fast_path_length=longest)
    batch = [
        (SimpleNamespace(position_offset=offset, remaining_prefill_tokens=[0] * later), tokens)
        for offset, later, tokens in states
    ]
    planned = SimpleNamespace(cache=holder, batch=batch) if newer else SimpleNamespace(cache=None, batch=batch)
    if not newer:
        planned.max_decode_fast_path_length = longest
    futures, *rest = adapter._PlannedScheduler.schedule_batch(planned, 0, 0)
    assert planned.batch == []
    return [(future.has_new_token, future.query_length, future.complete_blocks) for future in futures], *rest


@pytest.mark.parametrize("newer", [True, False])
def test_the_planned_batch_is_what_the_engine_gets_whatever_it_asks_for(newer) -> None:
    assert read((9, 0, 1), (3, 0, 1), newer=newer) == ([(True, 1, 0)] * 2, True, 2, 12)
    assert read((9, 0, 1), (10, 0, 1), newer=newer)[1] is False, "one is too long for the fast path"
    assert read((9, 0, 1), (0, 0, 2), newer=newer) == ([(True, 1, 0), (True, 2, 0)], False, 3, 9), "one reads a prompt"
    assert read((0, 5, 7), newer=newer) == ([(False, 7, 0)], False, 7, 0), "and is not done with it"
    assert read((0, 0, 1), longest=0, newer=newer)[1] is False
    assert read(newer=newer) == ([], True, 0, 0)


def test_pages_that_are_lost_or_belong_to_nobody_are_noticed() -> None:
    def books(free: int = 1, used: int = 2, **pages: list[int]) -> Any:
        cache = SimpleNamespace(free=free, used=used, pages=3, table={name[1:]: held for name, held in pages.items()})
        return SimpleNamespace(_cache=cache, _states={7: None}, swap_space=SimpleNamespace(check=lambda: None))

    ContinuousBatchingEngine.check(books(_7=[1, 2]))
    ContinuousBatchingEngine.check(books(_7=[1, 2], _8=[]))
    for wrong, sentence in (
        (books(free=2, _7=[1, 2]), "pages of the cache"),
        (books(free=0, _7=[1, 2]), "pages of the cache"),
        (books(_8=[1]), "pages of nobody"),
    ):
        with pytest.raises(AssertionError, match=sentence):
            ContinuousBatchingEngine.check(wrong)


def test_the_thread_that_runs_iterations_is_prepared_for_its_device(monkeypatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(adapter.torch, "set_num_threads", lambda threads: seen.append(threads))
    monkeypatch.setattr(adapter.torch.cuda, "set_device", lambda device: seen.append(str(device)))
    for device, done in (("cpu", [3, "warm"]), ("cuda:1", ["cuda:1", "warm"]), ("cuda", ["warm"])):
        seen.clear()
        manager = SimpleNamespace(warmup=lambda: seen.append("warm"))
        ContinuousBatchingEngine.enter(SimpleNamespace(device=torch.device(device), _manager=manager), 3)
        assert seen == done


def test_an_engine_counts_what_runs_and_goes_on_to_count_after_its_end() -> None:
    engine = batching()
    engine.add(0, range(6), 2, (), {})
    assert (engine.running, engine.pages_used, engine.pages_of(0), engine.pages_of(9)) == (0, 0, 0, 0)
    assert engine.step() == StepResult((), (), (), 0), "nothing was planned"
    engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, 4),)))
    step = engine.step()
    assert step == StepResult((), (0,), (), 1) and is_frozen(step)
    assert (engine.running, engine.pages_used, engine.pages_of(0)) == (1, 1, 1)
    engine.carry_out(StepPlan(prefill_chunks=(Chunk(0, 2),)))
    ((id, _, last),) = engine.step().tokens
    assert (id, last, engine.running, engine.pages_of(0)) == (0, False, 1, 2)
    engine.cancel(5)
    engine.cancel(0)
    assert (engine.running, engine.pages_used, engine.scheduling) == (0, 0, 0.0)
    engine.close()
    assert (engine.running, engine.pages_used, engine.pages_of(0)) == (0, 0, 0)


def test_transformers_own_scheduler_is_told_at_once_and_says_how_long_it_takes() -> None:
    engine = batching(SCARCE, margin=0.0)
    engine.add(3, range(6), 1, (), {})
    assert engine.scheduling == 0.0 and engine.swap_space.pages == 0
    step = engine.step()
    assert step.started == (3,) and step.sequences == 1 and step.tokens[0][::2] == (3, True)
    assert engine.scheduling > 0
    assert engine.step() == StepResult()
