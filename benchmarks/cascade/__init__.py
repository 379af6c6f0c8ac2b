"""Benchmarks of cascade; `pliant bench cascade` runs bench.py."""
