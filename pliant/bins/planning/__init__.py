"""Plans of the bins system: which lengths get a runtime, and how many devices each runtime gets."""
