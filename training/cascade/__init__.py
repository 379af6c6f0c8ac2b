"""Training for the cascade: its small levels, distilled."""
