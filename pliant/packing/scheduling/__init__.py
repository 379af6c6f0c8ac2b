"""Decides which sequences each iteration runs, by forecasts of their lengths. Knows no model."""
