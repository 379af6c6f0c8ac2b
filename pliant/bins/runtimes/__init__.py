"""Runtimes: an encoder compiled for static shapes, and launches on them."""
