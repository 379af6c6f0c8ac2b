"""Benchmarks of tokens; `pliant bench tokens` runs bench.py."""
