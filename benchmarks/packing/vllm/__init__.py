"""Pliant's decisions in vLLM against vLLM's own scheduler: the same engine, memory and requests."""
