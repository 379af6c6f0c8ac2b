"""Training for bins."""
