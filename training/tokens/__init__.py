"""Training for tokens."""
