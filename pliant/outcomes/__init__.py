"""What later labels say of answers: accuracy, calibration, and whether a promised accuracy holds. Knows no system.

The test of a promise is an e-process (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS
B, 2023), so it may be looked at after every label. Nothing here holds what people wrote or sent, except `inputs.py`, which
reads what a service keeps only if its setting `keep_inputs` says so.
"""
