"""`python -m pliant.benchmarks.baselines litserve|ray PORT`: one service in the foreground."""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    import_module(f"pliant.benchmarks.baselines.{sys.argv[1]}_service").main(int(sys.argv[2]))
