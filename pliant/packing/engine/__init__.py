"""Generates texts on a device: the model, its cache, and the loop of iterations."""
