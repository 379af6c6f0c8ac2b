"""What a service's front door takes of the time of a request: learnt from the answers that it has written.

A scheduler decides by deadlines, but an answer is of use only once it is written: after its decision come the event
loop, the encoding, the middleware and the socket. `FrontDoor` forecasts these seconds, and they are taken off each
deadline before a scheduler sees it. The way there needs no forecast: a request is stamped when it comes to the socket.

The forecast is a high quantile of the latest seconds, over two windows at most, each a few usual deadlines long. So what
was learnt in a bad moment is forgotten soon, whether or not any request is let in meanwhile; refusals teach as answers
do; and where nothing is known nothing is taken off.
"""

from __future__ import annotations

import math

SLOWER = 0.1  # share of the answers that take longer than the forecast
PRIOR = 10  # answers written at once that count beside those of two windows: a few slow ones among few say nothing
LEAST, STEPS, BINS = 1e-4, 4, 72  # seconds of the first bin, bins for each doubling, and bins: up to 22 s
WINDOW = 2.0  # usual deadlines
SHORTEST_WINDOW, LONGEST_WINDOW = 0.1, 5.0  # seconds between which that is kept
NEWEST = 0.05  # weight of the newest request in the usual deadline


class FrontDoor:
    """Times are seconds on any one clock. `usual_deadline`: seconds, until requests have said otherwise."""

    def __init__(self, usual_deadline: float = 0.5) -> None:
        self.usual_deadline = usual_deadline
        """The geometric mean of the latest deadlines, in seconds from the socket: few very long ones change it little."""
        self._present, self._former = (
            [0] * BINS,
            [0] * BINS,
        )  # answers by their seconds, of this window and the one before
        self._begun = -math.inf  # the present window
        self._forecast: float | None = None  # None: to be computed anew

    def note_deadline(self, deadline: float) -> None:
        """Note that a request must be answered within so many seconds of its arrival at the socket."""
        self.usual_deadline *= (max(deadline, LEAST) / self.usual_deadline) ** NEWEST

    def answered(self, seconds: float, now: float) -> None:
        """Note that an answer or a refusal was written so many seconds after it was decided."""
        self._turn(now)
        doublings = math.log2(max(seconds, LEAST) / LEAST)
        self._present[min(math.ceil(STEPS * doublings), BINS - 1)] += 1
        self._forecast = None

    def way_back(self, now: float) -> float:
        """Return the seconds within which an answer that is decided now will be written, most probably."""
        self._turn(now)
        if self._forecast is None:
            self._forecast = self._quantile()
        return self._forecast

    def _turn(self, now: float) -> None:
        """Begin another window if the present one is over, or if the clock went back."""
        window = min(max(WINDOW * self.usual_deadline, SHORTEST_WINDOW), LONGEST_WINDOW)
        age = now - self._begun
        if 0 <= age < window:
            return
        self._former = self._present if window <= age < 2 * window else [0] * BINS
        self._present, self._begun, self._forecast = [0] * BINS, now, None

    def _quantile(self) -> float:
        counts = [present + former for present, former in zip(self._present, self._former, strict=True)]
        above = math.floor(SLOWER * (sum(counts) + PRIOR))  # answers that may take longer
        for place in range(BINS - 1, -1, -1):
            above -= counts[place]
            if above < 0:
                return LEAST * 2 ** (place / STEPS)
        return 0.0
