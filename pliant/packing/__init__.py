"""Packing: predicted output lengths decide how texts share a generator's memory, after S3 (Jin et al., NeurIPS 2023).

The words of this package:

- *page*: a block of the key-value cache that holds a fixed number of tokens of one sequence.
- *forecast*: quantiles of an output's length in tokens; *bucket*: the class of length that S3 predicts instead.
- *iteration* or step: one forward pass. Every running sequence gets one token; prompts are read in chunks beside them.
- *preemption*: a running sequence gives up its pages. They are swapped to the host, or discarded and recomputed.
- *safety*: the standard deviations that admission adds to the pages that sequences are predicted to hold.
"""
