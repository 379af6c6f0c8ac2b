"""Grammars of outputs: which tokens may come next, so that a text keeps to a JSON schema, a regular expression or a choice.

The library llguidance compiles a grammar, in its dialect of Lark, and says after every token which may follow. It needs no
torch, so that a service can check a grammar before it accepts a request.

What a grammar costs is bounded. The library's own limits hold for each mask: the expressions and the items that it may
come from, and the states of the automaton that a text may have made (some 600 bytes each). They do not hold for all that
is done while a grammar is compiled: `multipleOf` makes an automaton of as many states as the number is large. So a service
lets a process try a grammar first (`try_out`), whose time and memory only a process can limit. A text whose masks take
more processor time than others' can bear is `costly`.

Shape suffixes: V vocabulary.
"""

from __future__ import annotations

import json
import random
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pliant.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


KEPT_BYTES = 64 * 1024 * 1024  # of compiled grammars
LEAST_BYTES = 64 * 1024  # that a compiled grammar is taken to have
LIMITS: dict[str, Any] = {"step_lexer_fuel": 50_000, "step_max_items": 20_000, "max_lexer_states": 10_000}
"""Of the library, for one mask and for the automaton of one text. A step of that fuel takes some 4 ms."""
TRIED_TOKENS = 16
BURST_SECONDS, TOKEN_SECONDS = 0.05, 0.001
"""Of a processor: what the masks of a text may take beyond an allowance for each token."""
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How JSON is written: without line breaks. A small model may else go on with whitespace for ever."""


def json_rule(schema: object) -> str:
    """Return the rule for JSON of a schema, to be used in a grammar. `schema`: an object, true or false."""
    limited = {**schema, "x-guidance": COMPACT} if isinstance(schema, Mapping) else schema
    return f"%json {json.dumps(limited)}"


class Grammars:
    """The grammars over one tokenizer, for any thread.

    `tokenizer`: tokenizer.json; `ends`: tokens that end an output, at least one.
    """

    def __init__(self, tokenizer: str, vocabulary: int, ends: Sequence[int]) -> None:
        self._text, self._vocabulary, self._ends = tokenizer, vocabulary, list(ends)
        self._tokenizer: Any = None
        self._trouble = ""  # why there is none
        self._recent: dict[str, tuple[Any, int]] = {}  # compiled grammars with their bytes, the last used at the end
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Grammars], tuple[str, int, list[int]]]:
        """Travel to another process without what was compiled in this one."""
        return Grammars, (self._text, self._vocabulary, self._ends)

    def check(self, grammar: str, name: str) -> None:
        """Compile a grammar ahead of its first text. Raise `InputError` if it cannot be used; `name` is its field."""
        self.load()
        if self._trouble:
            raise InputError(name, "given", f"left out: {self._trouble}")
        trouble = self._compiled(grammar).get_error()
        if trouble:
            raise InputError(name, f"refused ({_sentence(trouble)})", "one that can be compiled")

    def try_out(self, grammar: str, name: str) -> None:
        """As `check`, and also raise for one that is too complex for the beginning of some text."""
        self.check(grammar, name)
        matcher, choice = self.matcher(grammar), random.Random(0)
        for _ in range(TRIED_TOKENS):
            tokens = np.flatnonzero(matcher.allowed())
            if matcher.stuck:
                raise InputError(name, "too complex", "one whose texts take less work")
            if not len(tokens):
                return
            matcher.take(int(tokens[choice.randrange(len(tokens))]))

    def load(self) -> None:
        """Read the tokenizer, which takes some tenths of a second in which nothing else runs in this process."""
        with self._lock:
            if self._tokenizer is not None or self._trouble:
                return
            if not self._ends:
                self._trouble = "the model has no token that ends an output"
                return
            try:
                from llguidance import LLTokenizer

                self._tokenizer = LLTokenizer(self._text, n_vocab=self._vocabulary, eos_token=self._ends)
            except ImportError:
                self._trouble = "the package llguidance is not installed"
            except Exception as error:  # the library raises nothing narrower
                self._trouble = f"llguidance cannot read the model's tokenizer ({_sentence(str(error))})"

    def matcher(self, grammar: str, tokens: Sequence[int] = ()) -> Matcher:
        """Return the state of a text that has these tokens already."""
        matcher = self._compiled(grammar).deep_copy()
        matcher.consume_tokens(list(tokens))
        return Matcher(matcher)

    def _compiled(self, grammar: str) -> Any:
        """Return the state of an empty text, which is kept for the next one with the same grammar.

        Another thread may use what is kept meanwhile, or compile another grammar.
        """
        from llguidance import LLMatcher, LLParserLimits

        self.load()
        with self._lock:
            kept = self._recent.pop(grammar, None)
            if kept is not None:
                self._recent[grammar] = kept
                return kept[0]
        before = _memory()
        lark, limits = LLMatcher.grammar_from_lark(grammar), LLParserLimits(**LIMITS)
        matcher = LLMatcher(self._tokenizer, lark, log_level=0, limits=limits)
        size = max(_memory() - before, len(grammar), LEAST_BYTES)
        with self._lock:
            self._recent[grammar] = matcher, size
            while sum(size for _, size in self._recent.values()) > KEPT_BYTES:
                del self._recent[next(iter(self._recent))]
        return matcher


class Matcher:
    """What a grammar allows next in one text. `costly`: its masks have taken more time than they may."""

    def __init__(self, matcher: Any) -> None:
        self._matcher, self._left = matcher, BURST_SECONDS

    @property
    def stuck(self) -> bool:
        """Whether nothing more can come, since the grammar has become too complex or was left."""
        return bool(self._matcher.is_error())

    @property
    def costly(self) -> bool:
        return self._left < 0

    def exclude(self, scores_V: Tensor) -> None:
        """Set the scores of all tokens that may not come next to minus infinity; of none, if it is stuck."""
        began = time.thread_time()
        allowed_V = self.allowed()[: len(scores_V)]
        self._left = min(self._left + TOKEN_SECONDS - (time.thread_time() - began), BURST_SECONDS)
        if not self.stuck:
            import torch

            scores_V.masked_fill_(scores_V.new_tensor(allowed_V == 0, dtype=torch.bool), -np.inf)

    def allowed(self) -> np.ndarray[Any, Any]:
        """Return uint8 [V or somewhat more], 1 for each token that may come next; all the same, if it is stuck."""
        return np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")

    def take(self, token: int) -> None:
        """Go on by a token."""
        self._matcher.consume_token(token)


def _memory() -> int:
    """Return the resident bytes of this process; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.is_file() else 0


def _sentence(trouble: str) -> str:
    """Return the library's message in one line, without the part of the grammar that it repeats."""
    return " ".join(trouble.split("\n   1 |")[0].split())[:300]
