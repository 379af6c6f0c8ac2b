"""Watches what a service sees, off the requests' path, and says when it has changed. Knows no system.

On the path a value costs a search among some sixty edges and an addition. What is made of the counts is in pliant/watch.
"""
