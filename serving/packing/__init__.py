"""The endpoint of packing."""
