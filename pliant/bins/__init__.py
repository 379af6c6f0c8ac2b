"""bins: statically shaped runtimes of an encoder per input length, allocated to devices and dispatched to (after Arlo)."""
