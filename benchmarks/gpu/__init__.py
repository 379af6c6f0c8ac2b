"""The acceptance kit: what runs on a GPU, whether it is right, and how fast it is: `python -m pliant.benchmarks.gpu --help`.

It needs torch, timm, transformers and pytest, and neither Prefect, MLflow, BentoML nor pydantic. What a system measures is
in its own folder (benchmarks/<system>/acceptance.py).
"""
