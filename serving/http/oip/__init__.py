"""The Open Inference Protocol v2 over HTTP (KServe V2), with the extensions binary_tensor_data and classification.

It follows the protocol's own pages (kserve.github.io, "Open Inference Protocol (V2)" and "Binary Tensor Data Extension") and
Triton's classification extension. A system says what its models are and how they are called (models.py); it is no part of
this package.
"""
