"""vLLM as the engine of packing: the virtual environment that it has of its own, as its packages differ from Pliant's."""
