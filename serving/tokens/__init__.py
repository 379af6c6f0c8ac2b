"""The endpoint of tokens."""
