"""Options of the embedded backbone replace all defaults."""

import pytest

from pliant.errors import InputError
from pliant.training.tokens.foundation import FoundationConfig


def test_options_that_lack_a_size_are_refused_by_name():
    """A partial table in the TOML file once ended in a KeyError in the middle of the flow."""
    with pytest.raises(InputError, match=r"foundation\.options is without img_size, patch_size"):
        FoundationConfig(options={"embed_dim": 24})
