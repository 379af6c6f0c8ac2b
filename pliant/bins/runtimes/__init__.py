"""An encoder compiled for static shapes, and launches on it."""
