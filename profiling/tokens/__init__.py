"""Measuring for tokens."""
