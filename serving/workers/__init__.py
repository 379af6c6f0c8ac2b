"""Processes that own a device, and the workers by which a service uses them."""
