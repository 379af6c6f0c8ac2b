"""BentoML as the host of a service."""
