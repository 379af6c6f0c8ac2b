"""`pliant demo`: every system from training to a live comparison."""
