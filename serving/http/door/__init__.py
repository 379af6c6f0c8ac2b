"""The door: what a connection may cost before a request reaches the app, and which requests an overloaded loop takes in.

`protocol` is uvicorn's protocol with limits of size, time and number; `connections` keeps the number of connections in
bounds; `load` measures the event loop, and decides which requests are shed and whose turn it is; `door` holds them together.
"""
