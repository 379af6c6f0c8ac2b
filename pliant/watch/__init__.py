"""Notices that a running service sees something else than its model was made for, by anytime-valid tests.

A stream is one quantity (classes, confidences, lengths, right and wrong answers, ...), counted by bin on a request's path
and tested by blocks and by windows of hours of the week (detector.py, which says what is guaranteed).

Pure: counts and times come in, alarms go out, with no clock, no disk and no log. Knows no system.
"""
