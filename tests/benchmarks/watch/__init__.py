"""Tests of the benchmarks of the watch."""
