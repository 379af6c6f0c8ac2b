"""Forecasts of lengths in vLLM: from a predictor in a process of its own, or from the outputs so far.

The process (`pliant.serving.packing.engine.vllm_predictor_device`) gets the tokens of prompts and returns quantiles, each
a JSON line. One that ends, or owes answers and says nothing for long, is started again, three times at most; without it
there are no forecasts, and the scheduler, which never waits for the process, goes by quantiles of the outputs so far to
prompts of a similar length, learnt while serving.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from queue import SimpleQueue

import numpy as np

from pliant.packing.scheduling.forecast import QUANTILES

WINDOW = 300  # latest outputs that are remembered of each class of prompts
ENOUGH = 24  # outputs of a class from which on its own quantiles count; before, those of all
AFRESH = 8  # outputs after which quantiles are computed anew
MEDIAN, SPREAD = 128.0, 1.2  # of the log-normal that is assumed before any output has ended, the spread in its log
_NORMAL = (-1.645, -1.282, -0.674, 0.0, 0.674, 1.282, 1.645, 2.326)  # standard normal quantiles at QUANTILES
PRIOR = tuple(MEDIAN * float(np.exp(SPREAD * z)) for z in _NORMAL)


@dataclass(slots=True)
class _Outputs:
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    quantiles: tuple[float, ...] = PRIOR
    since: int = AFRESH - 1  # outputs since the quantiles were computed

    def add(self, tokens: int) -> None:
        self.latest.append(tokens)
        self.since += 1
        if self.since >= AFRESH or len(self.latest) < AFRESH:
            self.quantiles, self.since = tuple(np.quantile(self.latest, QUANTILES).tolist()), 0


class LearnedLengths:
    """Quantiles of outputs by the power of two that a prompt's tokens reach."""

    def __init__(self) -> None:
        self._all = _Outputs()
        self._classes: dict[int, _Outputs] = {}

    def forecast(self, prompt_tokens: int) -> tuple[float, ...]:
        """Return the quantiles in tokens for a prompt of so many tokens."""
        outputs = self._classes.get(prompt_tokens.bit_length())
        if outputs is not None and len(outputs.latest) >= ENOUGH:
            return outputs.quantiles
        return self._all.quantiles

    def add(self, prompt_tokens: int, output_tokens: int) -> None:
        """Note an output that has ended, also by its limit."""
        self._all.add(output_tokens)
        self._classes.setdefault(prompt_tokens.bit_length(), _Outputs()).add(output_tokens)


logger = logging.getLogger("pliant.packing.vllm")

MODULE = "pliant.serving.packing.engine.vllm_predictor_device"
STARTS = 3
READY_SECONDS = 180.0  # for the process to load the predictor
SLOW_SECONDS = 2.0  # without an answer that is owed, after which nobody waits for forecasts
SILENT_SECONDS = 30.0  # without an answer that is owed, after which the process is started again
LAST = 1024  # tokens of a prompt, its last, that are read

Forecast = tuple[tuple[float, ...], int]
"""Quantiles in tokens, and the upper bound of the predicted class in tokens (0: none)."""


class Predictions:
    """Requests and results of one predictor's process. Any thread may call this, and none waits for the process."""

    def __init__(
        self, predictor: str, tokenizer: str, command: Sequence[str] = (), silent_seconds: float = SILENT_SECONDS
    ) -> None:
        """`predictor`: folder of its artifact. `tokenizer`: folder or file of the model's, which turns tokens into text."""
        self._command = list(command) or [sys.executable, "-m", MODULE, predictor, tokenizer]
        self._silent_seconds = silent_seconds
        self._done: dict[str, Forecast] = {}
        self._asked: dict[str, Sequence[int]] = {}
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._ready = False
        self._to_write: SimpleQueue[str] = SimpleQueue()  # names, for the present process; empty: it has ended
        self._owing = 0.0  # when the first question was written that the last answer has not followed; 0: none was
        self._stopping = self._over = False  # over: no further process is started
        self.starts = self.predicted = self.failed = 0
        self._thread = threading.Thread(target=self._run, name="pliant predictor", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether forecasts are to be expected soon."""
        owing = self._owing
        return self._ready and (not owing or time.monotonic() - owing < SLOW_SECONDS)

    def ask(self, name: str, ids: Sequence[int]) -> None:
        """Ask for the forecast of a prompt."""
        with self._changed:
            if self._stopping or self._over:
                return
            self._asked[name] = ids[-LAST:]
            self._to_write.put(name)

    def take(self, name: str) -> Forecast | None:
        """Return the forecast of a prompt, once; None if there is none yet."""
        with self._changed:
            return self._done.pop(name, None)

    def come(self) -> list[str]:
        """Return the names of the forecasts that are there."""
        return list(self._done) if self._done else []

    def forget(self, name: str) -> None:
        """Note that a forecast is not needed any more."""
        with self._changed:
            self._done.pop(name, None)
            self._asked.pop(name, None)

    def wait(self, seconds: float) -> None:
        """Return when a forecast has come, when none is to be expected, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._done or not self._ready, seconds)

    def stop(self) -> None:
        """End the process, also while it loads."""
        with self._changed:
            self._stopping, process = True, self._process
        if process is not None:
            process.kill()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopping and self.starts < STARTS:
            self.starts += 1
            try:
                self._serve()
            except (OSError, ValueError) as error:
                logger.error("the length predictor could not be used: %s", error)
            with self._changed:  # what the process has not answered is given up
                self._to_write.put("")
                self._to_write = SimpleQueue()
                self._process, self._ready, self._owing = None, False, 0.0
                self.failed += len(self._asked)
                self._asked.clear()
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._asked.clear()
        if not self._stopping:
            logger.error("the length predictor ended %d times; lengths are forecast by those of all outputs", STARTS)

    def _serve(self) -> None:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stdout is not None
        killer = threading.Timer(READY_SECONDS, process.kill)
        try:
            killer.start()
            with self._changed:
                self._process = process
                if self._stopping:
                    return
            if not any(line.strip() == "ready" for line in process.stdout):
                return
            killer.cancel()
            with self._changed:
                self._ready = True
            for work in (self._write, self._watch):
                threading.Thread(target=work, args=(process, self._to_write), daemon=True).start()
            for line in process.stdout:
                self._receive(line)
        finally:
            killer.cancel()
            process.kill()
            process.wait()

    def _receive(self, line: str) -> None:
        with self._changed:
            self._owing = 0.0
        try:
            row = json.loads(line)
            name, tokens, bucket = str(row["name"]), tuple(float(x) for x in row["tokens"]), int(row["bucket"])
        except (ValueError, KeyError, TypeError, OverflowError):
            logger.warning("the length predictor said %r, which is no forecast", line[:80])
            return
        usable = len(tokens) == len(QUANTILES) and all(map(isfinite, tokens)) and bucket >= 0
        with self._changed:
            if self._asked.pop(name, None) is not None and usable:
                self._done[name] = tokens, bucket
                self.predicted += 1
                self._changed.notify_all()

    def _write(self, process: subprocess.Popen[str], names: SimpleQueue[str]) -> None:
        """Write questions until the process ends: a full pipe holds up nobody else."""
        assert process.stdin is not None
        try:
            while name := names.get():
                with self._changed:
                    ids = self._asked.get(name)
                    if ids is None:
                        continue
                    self._owing = self._owing or time.monotonic()
                process.stdin.write(json.dumps({"name": name, "ids": list(ids)}) + "\n")
                process.stdin.flush()
        except (OSError, ValueError):
            logger.debug("the length predictor ends", exc_info=True)

    def _watch(self, process: subprocess.Popen[str], names: SimpleQueue[str]) -> None:
        """End a process that owes an answer and says nothing for long."""
        while names is self._to_write:
            time.sleep(min(self._silent_seconds / 4, 1.0))
            owing = self._owing
            if names is self._to_write and owing and time.monotonic() - owing > self._silent_seconds:
                logger.error("the length predictor has said nothing for %.0f s", self._silent_seconds)
                process.kill()
                return
