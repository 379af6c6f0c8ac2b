"""How a service loads its artifacts, starts, and replaces them with the next champion."""
