"""The version of Pliant, which code in a bento cannot ask of an installed package, as it is none there."""

VERSION = "0.1.0"
"""That of pyproject.toml; a test compares both."""
