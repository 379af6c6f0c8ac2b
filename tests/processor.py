"""What of the processor at hand decides whether a test can run."""

import pytest

from pliant.precision import has_bfloat16

NEEDS_BFLOAT16 = pytest.mark.skipif(
    not has_bfloat16("cpu"), reason="this processor has no instructions for bfloat16, or torch may not use them"
)
