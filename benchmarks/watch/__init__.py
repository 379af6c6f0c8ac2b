"""Measures the watching of pliant/watch: false alarms in quiet months, and the delay of alarms beside river's detectors."""
