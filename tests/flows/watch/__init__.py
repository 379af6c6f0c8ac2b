"""Tests of the night watch on the side of the flows."""
