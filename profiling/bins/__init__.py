"""Measuring for bins."""
