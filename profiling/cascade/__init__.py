"""Measuring for cascade."""
