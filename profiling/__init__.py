"""Profiling: `profile(runtime, config) -> tables`. Runs from a checkout on a bare GPU machine."""
