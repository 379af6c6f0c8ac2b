"""Measuring for packing."""
