"""Decisions in worlds that differ from the profile, against doing nothing clever: `pliant bench robust`."""
