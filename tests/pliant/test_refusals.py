"""What makes no sense is refused before anything is done with it, with the field that is wrong."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pliant import systems
from pliant.bins.artifact import Encoder, Shape
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.planning.allocate import Demand, allocate_streams
from pliant.bins.planning.edges import choose_edges, padding_cost, worthwhile_batches
from pliant.bins.policies import make as make_bins
from pliant.bins.runtimes.padding import check as check_texts
from pliant.bins.scheduler import BinsScheduler
from pliant.cascade.artifact import Pruning
from pliant.cascade.calibrate import fit_spread, temperature
from pliant.cascade.knowledge import Knowledge, Model, Path
from pliant.cascade.plan import PlanConfig
from pliant.cascade.prune import kept_words
from pliant.cascade.route import choose
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import walks
from pliant.device import threads
from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Arrived
from pliant.tokens.policies import make as make_tokens
from pliant.workload import alternating, markov_modulated, poisson
from tests.fixtures.bins.loads import ask as ask_bins
from tests.fixtures.bins.scenarios import bins
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.cascade.tiny import some_outputs
from tests.fixtures.tokens.loads import KNOWN

RNG, FLAT, NAN, INF = np.random.default_rng(0), Demand(0.0, 1.0, (0.0,)), float("nan"), float("inf")
ENCODER = Encoder("tiny", "embedding", (), "mean", True, "{}", "{}", 8, "data", {"w": np.zeros(1, np.float32)})
ONE, DYNAMIC = Shape(8, 1), Shape(64, 4, True)
MAIL = bins("mail", batches=(1, 4))


def shapes(*some: Shape, seconds: tuple[float, ...] | None = None):
    static = sum(not shape.dynamic for shape in some)
    return lambda: some_bins(shapes=some, seconds=(0.1,) * static if seconds is None else seconds)


def texts(shape: Shape, *sizes: tuple[int | tuple[int, int], int]):
    return lambda: check_texts(shape, [(np.ones(ids, np.int32), np.zeros(types, np.int8)) for ids, types in sizes])


def table(settings=(0,), batches=(1,), seconds=((1.0,),), buckets=()):
    return partial(LatencyTable, settings, batches, seconds, buckets)


def placed(workers=(0,), models=(0,)):
    known = Knowledge((Model(cascade.table(1.0), workers),), {"news": (Path(models, 0.5),)})
    return lambda: known.check(1)


BINS = [
    *((partial(replace, ENCODER, **change), next(iter(change))) for change in ({"head": "poetry"}, {"pooling": "max"})),
    *((partial(Shape, *size), "shape") for size in ((0, 1), (1, 0), (-1, 1))),
    *(
        (shapes(*some), "shapes")
        for some in ((ONE,), (DYNAMIC, ONE), (Shape(16, 1), ONE, DYNAMIC), (ONE, ONE, DYNAMIC))
    ),
    (shapes(ONE, Shape(32, 4, True), DYNAMIC), "shapes"),
    *((shapes(ONE, DYNAMIC, seconds=some), "seconds") for some in ((), (0.1, 0.1), (0.0,), (INF,), (NAN,))),
    *((partial(some_bins, **{field: "magic"}), field) for field in ("engine", "placement")),
    *((partial(knowledge_of, some), "streams") for some in ([], [MAIL, MAIL])),
    (partial(knowledge_of, [MAIL], "quick"), "runtimes"),
    (lambda: knowledge_of([MAIL]).stream("chat"), "task"),
    *((partial(Config, **{field: "best"}), field) for field in ("dispatch", "plan")),
    (partial(Config, workers=3, deployed=(0, 0)), "deployed"),
    *((partial(Config, **{field: share}), field) for field in ("swaps", "margin") for share in (-0.1, 1.1, NAN)),
    *((partial(make_bins, name, [bins(placement="single")], Config()), "policy") for name in ("best", "first-come")),
    *(
        (partial(BinsScheduler(knowledge_of([MAIL])).handle, Arrived(request), 0.0), "task and length")
        for request in (ask_bins(1, task="chat"), ask_bins(1, length=513), ask_bins(1, length=-1))
    ),
    *((texts(Shape(8, 2), *some), "payloads") for some in ((), [(8, 8)] * 3)),
    *((texts(Shape(8, 2), some), "text") for some in ((9, 9), (0, 0), ((2, 3), (2, 3)))),
    (texts(Shape(8, 2), (4, 5)), "types"),
]
PLANNING = [
    *((partial(Demand, requests, 1.0, (1.0,)), "requests") for requests in (-0.5, INF)),
    *((partial(Demand, 1.0, capacity, (1.0,)), "capacity") for capacity in (0.0, INF)),
    (partial(Demand, 1.0, 1.0, ()), "latency"),
    (partial(Demand, 1.0, 1.0, (2.0, 1.0)), "latency at 1"),
    *((partial(Demand, 1.0, 1.0, (seconds,)), "latency at 0") for seconds in (-1.0, INF)),
    *((partial(allocate_streams, some, 3), "streams") for some in ([], [[FLAT], []])),
    (partial(allocate_streams, [[FLAT], [FLAT]], 1), "devices"),
    (partial(choose_edges, [0, 1], [1.0, 1.0], 0), "count"),
    *((partial(choose_edges, *same, 1), "histogram and seconds") for same in (([0], [1.0]), ([[0, 1]], [[1.0, 1.0]]))),
    *((partial(choose_edges, [0, count], [1.0, 1.0], 1), "requests_by_length") for count in (INF, -1)),
    (partial(choose_edges, [0, 1], [1.0, INF], 1), "seconds_by_length"),
    *((partial(choose_edges, [0, 1], [1.0, 1.0], 1, [length]), "candidates") for length in (0, 2)),
    *((partial(padding_cost, edges, [0, 1, 1], [1.0] * 3), "edges") for edges in ((0, 2), (1, 3))),
    *((partial(worthwhile_batches, some), "seconds_by_batch") for some in ({4: 1.0, 2: 1.0}, {1: 1.0, 2: NAN})),
]
CASCADE = [
    (partial(temperature, np.zeros((0, 2)), np.array([])), "texts to calibrate on"),
    (partial(temperature, np.array([[1.0, NAN]]), np.array([0])), "logits"),
    *((partial(temperature, np.array([[1.0, 0.0]]), np.array([label])), "label") for label in (2, -1)),
    (partial(fit_spread, np.zeros(0), np.zeros(0), np.zeros(0)), "texts to calibrate on"),
    (partial(fit_spread, np.array([INF]), np.zeros(1), np.ones(1)), "prediction or label"),
    *((partial(PlanConfig, confidence=share), "confidence") for share in (0.4, 1.0)),
    *((partial(PlanConfig, **{field: share}), field) for field in ("tuned", "target") for share in (0.0, 1.0)),
    (partial(PlanConfig, horizon=0), "horizon"),
    (partial(PlanConfig, drop=-0.1), "drop or further"),
    (partial(PlanConfig, further=(0.1, 1.0)), "drop or further"),
    *((placed(workers=some), "workers of model 0") for some in ((), (1,), (-1,))),
    *((placed(models=some), "models of news") for some in ((1,), (-1,))),
    (partial(kept_words, np.ones(1, np.float32), np.zeros(1, np.int32), Pruning("median")), "pruning rule"),
    *(
        (partial(CascadeScheduler(cascade.known()).handle, Arrived(cascade.ask(1, **wrong)), 0.0), "task and candidate")
        for wrong in ({"task": "mail"}, {"setting": 2}, {"setting": -1})
    ),
]
SHARED = [
    (partial(systems.system, "chess"), "SYSTEM"),
    *((table(settings=some, seconds=((1.0,),) * len(some)), "settings") for some in ((), (1, 0), (0, 0))),
    *((table(batches=some, seconds=((1.0,) * len(some),)), "batches") for some in ((), (0, 1), (2, 1))),
    *((table(buckets=some), "buckets") for some in ((0, 2), (4, 2), (2, 2))),
    *((table(batches=(1, 2), seconds=some), "seconds") for some in (((1.0,),), ((1.0, 1.0),) * 2)),
    *((table(seconds=((some,),)), "seconds") for some in (0.0, NAN, INF)),
    *((partial(poisson, *some, RNG), "rate and seconds") for some in ((-1, 1), (1, -1), (NAN, 1))),
    *((partial(markov_modulated, *some, 10, RNG), "dwell and rates") for some in (([], 1), ([1, 2], 0), ([1, 2], NAN))),
    *((partial(alternating, *some, 3.0), "low and high") for some in (([1], [10, 20]), ([1, 2], [10]))),
    (partial(make_tokens, "fixed", KNOWN), "policy"),
    *(
        (partial(make_tokens, name, KNOWN, gamma=gamma), "gamma")
        for name, gamma in (("otas", 0), ("pets", 2), ("tome", 4))
    ),
    *((partial(make_tokens, name, KNOWN, gamma=gamma), "gamma") for name, gamma in (("vpt", 0), ("default", 3))),
]


@pytest.mark.parametrize(("call", "field"), [*BINS, *PLANNING, *CASCADE, *SHARED])
def test_what_makes_no_sense_is_refused_by_its_field(call, field):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.field == field


def test_threads_are_at_least_one():
    with pytest.raises(InputError, match="threads"), threads(0):
        pass


def test_a_pruning_that_was_not_run_cannot_be_simulated():
    planned = cascade.cascade(
        "news",
        (cascade.profile("small", 0.7, 0.3), cascade.profile("large", 0.9, 1.0)),
        cascade.candidate((0, 1), Pruning("mean", 0.9)),
    )
    with pytest.raises(InputError, match="pruning"):
        walks(planned, some_outputs())


@pytest.mark.parametrize(
    ("accuracy", "latency", "least"), [(0.99, None, "0.9500"), (None, 0.5, "1.0000"), (0.93, 2.0, "5.0000")]
)
def test_an_accuracy_or_latency_that_no_candidate_meets_is_refused_with_the_best_there_is(accuracy, latency, least):
    offered = cascade.cascade("news", (cascade.profile("small", 0.8, 0.3),), cascade.candidate((0,)))
    figures = ((0.90, 3.0), (0.85, 1.0), (0.95, 5.0), (0.90, 2.0))
    offers = tuple(replace(offered.candidates[0], promised=promised, seconds=seconds) for promised, seconds in figures)
    with pytest.raises(InputError, match=least):
        choose(replace(offered, candidates=offers), accuracy, latency)
