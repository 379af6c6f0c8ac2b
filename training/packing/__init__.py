"""Training for packing."""
