"""Grammars of outputs: which tokens may come next, so that a text keeps to a JSON schema, a regular expression or a choice.

The library llguidance compiles a grammar, in its dialect of Lark, and says after every token which may follow. It needs no
torch, so that a service can check a grammar before it accepts a request.

Shape suffixes: V vocabulary.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pliant.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


RECENT = 64  # compiled grammars that are kept
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
        self._recent: dict[str, Any] = {}  # compiled grammars, the last used at the end
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Grammars], tuple[str, int, list[int]]]:
        """Travel to another process without what was compiled in this one."""
        return Grammars, (self._text, self._vocabulary, self._ends)

    def check(self, grammar: str, name: str) -> None:
        """Raise `InputError` for a grammar that cannot be used; `name` is its field."""
        self.load()
        if self._trouble:
            raise InputError(name, "given", f"left out: {self._trouble}")
        from llguidance import LLMatcher

        lark = LLMatcher.grammar_from_lark(grammar)
        failed, messages = LLMatcher.validate_grammar_with_warnings(lark, self._tokenizer)
        if failed:
            raise InputError(name, f"refused ({_sentence(messages[0])})", "one that can be compiled")

    def load(self) -> None:
        """Read the tokenizer, which takes some tenths of a second in which nothing else runs in this process."""
        with self._lock:
            if self._tokenizer is None and not self._trouble:
                self._read_tokenizer()

    def compile(self, grammar: str) -> None:
        """Compile a grammar ahead of its first text, which may take some tenths of a second."""
        self._compiled(grammar)

    def matcher(self, grammar: str, tokens: Sequence[int] = ()) -> Matcher:
        """Return the state of a text that has these tokens already."""
        matcher = self._compiled(grammar).deep_copy()
        matcher.consume_tokens(list(tokens))
        return Matcher(matcher)

    def _compiled(self, grammar: str) -> Any:
        """Return the state of an empty text, which is kept for the next one with the same grammar."""
        from llguidance import LLMatcher

        self.load()
        with self._lock:
            matcher = self._recent.pop(grammar, None)
            if matcher is None:
                matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0)
            self._recent[grammar] = matcher
            if len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]
            return matcher

    def _read_tokenizer(self) -> None:
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


class Matcher:
    """What a grammar allows next in one text."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    @property
    def stuck(self) -> bool:
        """Whether nothing more can come, since the grammar has become too complex or was left."""
        return bool(self._matcher.is_error())

    def exclude(self, scores_V: Tensor) -> None:
        """Set the scores of all tokens that may not come next to minus infinity; of none, if it is stuck."""
        allowed = self._matcher.compute_bitmask()
        if not self.stuck:
            bits_V = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little")[: len(scores_V)]
            excluded_V = scores_V.new_tensor(bits_V == 0, dtype=_bool())
            scores_V.masked_fill_(excluded_V, -np.inf)

    def take(self, token: int) -> None:
        """Go on by a token."""
        self._matcher.consume_token(token)


def _bool() -> Any:
    import torch

    return torch.bool


def _sentence(trouble: str) -> str:
    """Return the library's message in one line, without the part of the grammar that it repeats."""
    return " ".join(trouble.split("\n   1 |")[0].split())[:300]
