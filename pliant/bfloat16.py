"""bfloat16 in numpy's arrays, which have no such type: each number as its 16 bits, under a type that says what they are."""

from __future__ import annotations

import numpy as np

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""Arrays of it are stored, copied and compared. To compute, view them as 16-bit integers, and those as torch's bfloat16."""
