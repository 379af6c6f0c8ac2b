"""A policy is chosen by its name; a gamma that does not fit it is refused in one sentence."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.protocol import Arrived
from pliant.tokens.policies import CHOICES, POLICIES, SERVED, make
from pliant.tokens.published import FIGURE_4B, profile, variants
from pliant.tokens.scheduler import TokensScheduler
from tests.fixtures.tokens.loads import World, ask, bursty, run, scheduler

PUBLISHED = profile(FIGURE_4B)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_made_by_its_name_and_described_in_a_sentence(policy):
    created = make(policy, variants(FIGURE_4B) if policy == "infaas" else PUBLISHED)
    assert isinstance(created, TokensScheduler)
    (launch,) = created.handle(Arrived(ask(0, task="cifar10")), 0.0)
    gamma = CHOICES[policy].gamma
    assert gamma is None or launch.setting == gamma
    assert len(POLICIES[policy]) > 10


def test_an_unknown_policy_is_refused_with_the_list_of_all():
    with pytest.raises(InputError) as refused:
        make("fixed", PUBLISHED)
    assert str(refused.value) == f"policy is 'fixed', but must be one of {', '.join(POLICIES)}"


@pytest.mark.parametrize(
    ("policy", "gamma"),
    [
        ("otas", 0),
        ("otas-kept", -5),
        ("infaas", 0),
        ("pets", 2),
        ("pets", -5),
        ("tome", 0),
        ("tome", 4),
        ("vpt", 0),
        ("vpt", -5),
    ],
)
def test_a_gamma_that_does_not_fit_the_policy_is_refused(policy, gamma):
    with pytest.raises(
        InputError, match=f"gamma is {gamma}, but must be left out, or one that fits the policy {policy}"
    ):
        make(policy, PUBLISHED, gamma=gamma)


@pytest.mark.parametrize(("policy", "gamma"), [("default", 3), ("tome", -7), ("vpt", 16)])
def test_a_gamma_that_was_not_profiled_is_refused(policy, gamma):
    with pytest.raises(InputError, match=rf"gamma is {gamma}, but must be one of \(-20, -15"):
        make(policy, PUBLISHED, gamma=gamma)


@pytest.mark.parametrize(
    ("policy", "gamma"), [("default", 0), ("default", -10), ("pets", 0), ("tome", -10), ("vpt", 4)]
)
def test_the_gamma_asked_for_is_the_only_one_that_runs(policy, gamma):
    _, books = run(bursty(1, 0.3), World(), fresh=scheduler(policy, gamma=gamma))
    assert {launch.setting for launch in books.launches.values()} == {gamma}


def test_what_switches_between_models_and_the_fixed_ones_are_baselines_that_no_service_follows():
    assert set(POLICIES) - set(SERVED) == {"infaas", "tome", "vpt"}
