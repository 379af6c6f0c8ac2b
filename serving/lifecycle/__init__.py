"""How a service gets its artifacts, becomes ready, and takes up the next champion. Knows no system."""
