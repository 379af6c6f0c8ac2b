"""Notices that a running service sees something else than its model was made for, by anytime-valid tests.

The bets are those of Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B, 2023, and
the mixture over the time of change is in the spirit of Shin, Ramdas and Rinaldo, E-detectors, NEJSDS, 2024. A stream is
one quantity (classes, confidences, lengths, right and wrong answers, ...), counted by bin on a request's path and tested
block by block. A false alarm has a probability of at most alpha over all time, not per look, as long as each observation's
probabilities stay within the tolerance around the reference, whatever came before.

Pure: counts come in, alarms go out, with no clock, no disk and no log. Knows no system.
"""
