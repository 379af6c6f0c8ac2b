"""Every figure that README.md and docs/log quote: seeded, one command each, results as JSON."""
