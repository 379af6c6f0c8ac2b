"""Shadow and canary: a challenger is tried on copies, then on a growing share of traffic, and kept or taken back.

The tests are e-processes (Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B,
2023), so they may be looked at after every request. Everything here is pure: times and outcomes come in as arguments.
"""
