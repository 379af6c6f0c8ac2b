"""tokens: tokens added to or merged out of a vision transformer, per batch (after OTAS, 2024)."""
