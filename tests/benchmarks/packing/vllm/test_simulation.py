"""What is read from a journal; the journal is that of a simulation, whose steps and lengths are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.packing.vllm import simulation
from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput
from pliant.packing.scheduling.simulated import simulate
from pliant.packing.vllm.journal import JournalFile

RULES, MEMORY = Rules(context=200), Memory(40, 8, step_tokens=64, sequences=16)
COST = LinearCost(0.01, 0.0005, 0.002, 1e-5, 0.0)


@pytest.fixture(scope="module")
def live():
    """A journal, the lengths and the fates: two loads with time between them, memory that binds, and one more prompt."""
    rng, journal = np.random.default_rng(0), []
    quantiles = (5.0, 8.0, 12.0, 20.0, 30.0, 40.0, 50.0, 60.0)
    arrivals = [*np.sort(rng.uniform(0, 3, 40)), *np.sort(rng.uniform(60, 70, 40)), 200.0]
    prompts = [Prompt(n, float(at), int(rng.integers(3, 60)), 60, quantiles) for n, at in enumerate(arrivals)]
    lengths = {prompt.id: int(rng.integers(1, 60)) for prompt in prompts}
    run = simulate(
        *(prompts, lengths, RULES, MEMORY, COST),
        leaps=False,
        observe=lambda now, step_input, plan, _: journal.append((now, step_input, plan)),
    )
    return journal, lengths, run.fates


def test_lengths_prompts_and_costs_are_recovered(live):
    journal, lengths, _ = live
    session = simulation.session(journal, RULES, MEMORY)
    assert session.lengths == lengths
    assert sorted(session.prompts) == list(range(81))
    assert session.otherwise == 0
    assert 0 < session.deciding < session.lasted < 20
    assert session.cost.seconds(20, 10, 200) == pytest.approx(COST.seconds(20, 10, 200), rel=0.01)


def test_the_simulator_repeats_what_it_did(live):
    journal, _, fates = live
    session = simulation.session(journal, RULES, MEMORY)
    first, second = simulation.simulated(session, RULES, MEMORY, [range(40), range(40, 80)])
    for times, mine in ((first, fates[:40]), (second, fates[40:80])):
        assert times.mean == pytest.approx(np.mean([fate.ended - fate.arrival for fate in mine]), rel=0.02)
        lasted = max(fate.ended for fate in mine) - mine[0].arrival
        assert times.tokens == pytest.approx(sum(fate.generated for fate in mine) / lasted, rel=0.02)


def test_each_load_is_simulated_as_fast_as_the_machine_was_in_it(live):
    """In the second load every step takes a quarter longer: its times are stretched, and those of the first are not."""
    journal, _, fates = live
    second = next(at for at, (now, _, _) in enumerate(journal) if now >= 60)
    start = journal[second][0]
    slower = [(now if now < 60 else start + 1.25 * (now - start), *rest) for now, *rest in journal]
    session = simulation.session(slower, RULES, MEMORY)
    loads = simulation.simulated(session, RULES, MEMORY, [range(40), range(40, 80)])
    means = [np.mean([fate.ended - fate.arrival for fate in part]) for part in (fates[:40], fates[40:80])]
    first, later = (load.mean / mean for load, mean in zip(loads, means, strict=True))
    assert first == pytest.approx(1.0, rel=0.05)
    assert 1.2 < later < 1.5, "a quarter, and somewhat more where requests wait"


def test_a_request_that_left_and_came_again_has_all_of_its_tokens(live):
    journal, _, _ = live
    known = simulation.session(journal, RULES, MEMORY)
    # Another journal, in which a request comes again with 7 of its tokens as part of its prompt.
    first, again = Prompt(0, 0.0, 10, 50, (9.0,) * 8), Prompt(0, 0.0, 17, 43, (9.0,) * 8)
    inputs = [StepInput((first,)), *[StepInput()] * 6, StepInput((again,), cancelled=(0,)), *[StepInput()] * 29]
    inputs.append(StepInput(finished=(0,)))
    scheduler, entries = simulation.PackingScheduler(RULES, MEMORY), []
    for step, step_input in enumerate(inputs):
        entries.append((0.1 * step, step_input, scheduler.handle(step_input, 0.1 * step)))
    assert simulation.session(entries, RULES, MEMORY).lengths == {0: 7 + 30}
    assert known.decisions == len(journal)


def test_a_changed_decision_is_counted(live):
    journal, _, _ = live
    now, step_input, plan = journal[5]
    other = replace(plan, stalled=(1, 2, 3))
    assert simulation.session([*journal[:5], (now, step_input, other), *journal[6:]], RULES, MEMORY).otherwise == 1


def test_a_file_is_read(live, tmp_path):
    journal, _, _ = live
    path = tmp_path / "journal"
    file = JournalFile(str(path), RULES, MEMORY)
    for entry in journal:
        file.add(*entry)
    file.close()
    assert simulation.read(path) == journal


def test_a_journal_of_few_steps_is_refused(live):
    with pytest.raises(InputError, match="steps"):
        simulation.session(live[0][:5], RULES, MEMORY)
