"""Tries a challenger on real traffic: copies first (shadow), then a share of the requests (canary). Knows no system.

What is decided is in pliant/rollout; here are the requests, the copies, the generation on trial and the registry.
"""
