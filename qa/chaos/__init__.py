"""Seeded faults against real services under load (`make chaos`): no accepted request may end without exactly one answer."""
