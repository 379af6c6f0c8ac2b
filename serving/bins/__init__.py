"""The endpoint of bins."""
