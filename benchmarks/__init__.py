"""Every figure that README.md and LOG.md quote: seeded, one command each, results as JSON."""
