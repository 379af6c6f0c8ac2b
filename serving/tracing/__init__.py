"""OpenTelemetry traces of requests, for a share of them: what a request waited for, its launches, and the device.

Off by default. `middleware.py` decides for each request whether it is traced, and makes the span of the whole; the driver
and packing's endpoint add spans for what they know, after the fact. Where a request is not traced they read one variable.
"""
