"""What every endpoint needs of HTTP: its app, bodies, errors and texts. Knows no system."""
