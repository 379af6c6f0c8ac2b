"""Which sequences an iteration runs, from forecasts of their lengths. Knows no model."""
