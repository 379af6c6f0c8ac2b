"""How many devices each runtime gets, and which lengths get a runtime."""
