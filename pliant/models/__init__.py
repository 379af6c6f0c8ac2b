"""Parts of models that several systems share: text encoders, packed linear layers, CUDA graphs."""
