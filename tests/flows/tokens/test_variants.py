"""Models of other sizes come out of the flow's own stages, and go to the registry as wholes."""

from __future__ import annotations

import pytest

from flows import settings
from flows.release import open_registry
from flows.tokens import config
from flows.tokens.config import TokensFlowConfig, VariantConfig
from flows.tokens.run import run_connected
from flows.tokens.stages import foundation_key
from flows.tokens.variants import variant_settings
from pliant.errors import InputError
from pliant.tokens.artifact import Variant
from registry import codec
from tests.fixtures.tokens.tiny import setting
from tests.flows.tokens.test_flow import place  # noqa: F401  a fixture
from training.data import digits

VARIANTS = [{"name": "small", "options": {"depth": 1}}, {"name": "base"}]
NAMES = ["pliant-tokens-variant-base", "pliant-tokens-variant-small"]


def test_a_variants_settings_are_the_flows_with_its_foundation_and_gamma_0_alone():
    flow_config = TokensFlowConfig()
    variant_config = variant_settings(flow_config, VariantConfig("large", {"depth": 8}, images=20, learning_rate=0.5))
    assert variant_config.foundation.options == {**flow_config.foundation.options, "depth": 8}
    assert (variant_config.foundation.images, variant_config.foundation.learning_rate) == (20, 0.5)
    assert (variant_config.task.gammas, variant_config.latency.gammas) == ((), (0,))


def test_the_variant_without_changes_has_the_flows_own_foundation():
    flow_config = TokensFlowConfig()
    variant_config = variant_settings(flow_config, VariantConfig("base"))
    assert foundation_key(variant_config, digits("digit")) == foundation_key(flow_config, digits("digit"))


def test_the_default_variants_are_of_three_sizes():
    defaults = config.read(None, {})
    widths = [variant_settings(defaults, variant).foundation.options["embed_dim"] for variant in defaults.variants]
    assert widths == [96, 192, 256]


@pytest.mark.slow
def test_the_flow_publishes_every_variant_and_a_second_run_makes_nothing(place, capsys):  # noqa: F811
    released = run_connected(None, setting(variants=VARIANTS), variants=True)
    assert sorted(released["new"]) == NAMES
    registry = open_registry(settings.read(), "tokens")
    for name, depth in (("base", 2), ("small", 1)):
        folder, published = registry.fetch(f"pliant-tokens-variant-{name}")
        variant = codec.load(Variant, folder, published.digest)
        assert (variant.name, variant.backbone.options["depth"]) == (name, depth)
        assert variant.latency.settings == (0,) and list(variant.tasks) == ["digit"]
        assert variant.loading > 0 and 0 <= variant.tasks["digit"].accuracy <= 1
    capsys.readouterr()
    again = run_connected(None, setting(variants=VARIANTS), variants=True)
    assert (again["new"], again["versions"]) == ((), released["versions"])
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.endswith(": started")] == ["publish: started"]


@pytest.mark.slow
@pytest.mark.parametrize("names", [[], ["small", "small"]])
def test_variants_need_names_of_their_own(place, names):  # noqa: F811
    with pytest.raises(InputError, match="at least one, each of its own name"):
        run_connected(None, setting(variants=[{"name": name} for name in names]), variants=True)
