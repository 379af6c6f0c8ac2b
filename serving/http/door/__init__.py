"""The door: what a connection may cost before a request reaches the app, and which requests an overloaded loop takes in.

`connections` keeps the number of connections in bounds; `load` measures the event loop, and decides which requests are shed
and whose turn it is; `door` is uvicorn's protocol with limits of size, time and number, and holds them together.
"""
