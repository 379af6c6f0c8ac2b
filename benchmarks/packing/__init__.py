"""Benchmarks of packing; `pliant bench packing` runs bench.py."""
