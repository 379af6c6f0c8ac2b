"""Training for bins: encoders, and the lengths of requests."""
