"""Benchmarks of bins; `pliant bench bins` runs bench.py."""
