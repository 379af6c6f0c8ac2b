"""What later labels say of answers: accuracy, calibration, and whether a promised accuracy holds. Knows no system.

`tracker.py` remembers answers until their labels come, `record.py` counts these and tests promises, `labels.py` says which
labels may teach, and `files.py` reads what a service leaves on disk. None but the last holds what people wrote or sent, and
that only where the setting `keep_inputs` says so.
"""
