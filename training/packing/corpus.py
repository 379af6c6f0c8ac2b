"""Questions about docstrings and their answers, made of the docstrings' own parts: what the embedded generator learns from.

As in instruction data, the form of a question says roughly how long its answer is:

    kind         is it a class, a function, a method or a module?   a word
    count        how many names are there?                          a number
    summary      what is it about?                                  a sentence
    returns      what does it return?                               a sentence or some
    one, two, three, detail   what more is there to say?            so many sentences, or all, at most SENTENCES
    parameters   what do the parameters that are named mean?        a numbered list, a line each

Answers are sentences in plain English alone: without formulas, code and markup a small model learns them in a minute. The
form stands at the end of a question, where a predictor that reads the last of a long prompt still sees it. All turns of
a file are to fit, or all are held out (training/docstrings.py). Knows no tokenizer and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from pliant.errors import InputError
from training import docstrings
from training.data import Split
from training.docstrings import Docstring

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ ('<|assistant|>' if message['role'] == 'assistant' else '<|user|>') + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Whoever does not answer asks: a system message is a question's first part."""

PER_DOCSTRING = 4  # turns at most
SHORT_SHARE = 0.15  # of docstrings that are asked for a word: all of them could be
ASKED = 60  # words at most
SENTENCES = 8  # of an answer at most
FEWEST, MOST = 3, 40  # words of a sentence
ITEMS = 8  # of a list at most
PARTS = ("fit", "profiling", "test")

MARKUP = re.compile(r":\w+(?::\w+)?:(?=`)|<[^<>]*>|[`*]|\[\w+\]_")
SENTENCE = re.compile(r"(?<=[.!?]) +(?=[A-Z(\"'])")
PLAIN = re.compile(r"[A-Z][\w']*(?:[ ,;:()/-]{1,2}[\w'.=-]*\w\)?)*[.?]")
NAME = re.compile(r"(?<![\w.])(?<![,(] )([A-Za-z_]\w*)(?: \([^()]*\))? ?:(?![:\w])")
ARGUMENTS = ("Parameters", "Args", "Arguments")
SECTIONS = (*ARGUMENTS, "Returns", "Yields", "Examples", "Example", "Attributes", "Raises")
NO_PROSE = (*SECTIONS, "..", "See", "References", "Notes", "Note", "```", ">>>", "#", "-", "def")

FORMS: Mapping[str, tuple[str, ...]] = {
    "kind": (
        "Is this a class, a function, a method or a module?",
        "What kind of thing is it?",
        "In one word, what is it?",
    ),
    "count": ("How many parameters are these?", "Count the names.", "How many arguments are there?"),
    "summary": ("Summarise this.", "Say in one sentence what this is about.", "Give a title to this text."),
    "returns": ("What does it return?", "Describe the result.", "What do I get back?"),
    "one": ("Explain in one sentence.", "Add one sentence to this.", "Tell me briefly more."),
    "two": ("Explain in two sentences.", "Add two sentences to this.", "Tell me a little more."),
    "three": ("Explain in three sentences.", "Add three sentences to this.", "Tell me more."),
    "detail": ("Explain in detail.", "Write everything that is known about this.", "Elaborate at length."),
    "parameters": ("Describe the parameters.", "What do these parameters mean?", "Document every argument."),
}
SHORT = ("kind", "count")

Pair = tuple[str, str]
"""What a question is about, and its answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer; `source` is the file that they come from."""

    source: str
    form: str  # one of FORMS
    ask: str
    answer: str

    @property
    def prompt(self) -> str:
        """As the chat template renders it."""
        return f"{USER}{self.ask}{ASSISTANT}"

    @property
    def text(self) -> str:
        """With the answer and its end."""
        return f"{self.prompt}{self.answer}{END}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Turns and their split, which indexes them. `fingerprint` identifies both."""

    turns: tuple[Turn, ...]
    split: Split
    fingerprint: str


def load(seed: int = 0, packages: Sequence[str] = docstrings.PACKAGES) -> Corpus:
    """Of the packages that are installed, always the same from the same seed. Raises `InputError`."""
    rng = np.random.default_rng(seed)
    turns = tuple(turn for one in docstrings.corpus(packages) for turn in turns_of(one, rng))
    split = docstrings.split([turn.source for turn in turns], seed, docstrings.SHARES)
    mark = sha256(repr(turns).encode())
    for part in PARTS:
        mark.update(getattr(split, part).tobytes())
    return Corpus(turns, split, f"sha256:{mark.hexdigest()}")


def select(corpus: Corpus, part: str) -> tuple[Turn, ...]:
    """The turns of one of `PARTS`. Raises `InputError`."""
    if part not in PARTS:
        raise InputError("part", part, f"one of {', '.join(PARTS)}")
    return tuple(corpus.turns[row] for row in getattr(corpus.split, part))


def prompts(corpus: Corpus, part: str) -> tuple[str, ...]:
    """Rendered questions of one of `PARTS`, without their answers. Raises `InputError`."""
    return tuple(turn.prompt for turn in select(corpus, part))


def messages(corpus: Corpus, part: str) -> tuple[list[dict[str, str]], ...]:
    """The same questions as a client of a chat sends them. Raises `InputError`."""
    return tuple([{"role": "user", "content": turn.ask}] for turn in select(corpus, part))


def turns_of(one: Docstring, rng: np.random.Generator) -> list[Turn]:
    """Up to PER_DOCSTRING of what the docstring can answer, drawn by `rng`."""
    asked = [item for item in MAKERS.items() if item[0] not in SHORT or rng.random() < SHORT_SHARE]
    able = [(form, pair) for form, make in asked if (pair := make(one))]
    chosen = sorted(rng.permutation(len(able))[:PER_DOCSTRING])
    return [_turn(one.source, form, pair, rng) for form, pair in (able[at] for at in chosen)]


def _turn(source: str, form: str, pair: Pair, rng: np.random.Generator) -> Turn:
    (matter, answer), phrasings = pair, FORMS[form]
    return Turn(source, form, f"{matter} {phrasings[rng.integers(len(phrasings))]}", answer)


def _kind(one: Docstring) -> Pair | None:
    return _title(one), f"a {one.kind}"


def _count(one: Docstring) -> Pair | None:
    names = [name for name, _ in _arguments(one)]
    return (", ".join(names), str(len(names))) if names else None


def _summary(one: Docstring) -> Pair | None:
    """A title for what is said beyond it."""
    told, title = _prose(one), _sentences(one.paragraphs[0])[:1]
    return (_cut(told), title[0]) if told and title else None


def _returns(one: Docstring) -> Pair | None:
    told = _sentences(_section(one, "Returns", "Yields"), inside=True)
    return (_title(one), " ".join(told[:3])) if told else None


def _explained(least: int, most: int) -> Callable[[Docstring], Pair | None]:
    """So many sentences beyond the summary, where there are at least as many."""

    def make(one: Docstring) -> Pair | None:
        told = _prose(one)
        return (_title(one), " ".join(told[:most])) if len(told) >= least else None

    return make


def _described(one: Docstring) -> Pair | None:
    """A numbered list: what each name means."""
    told = _arguments(one)
    lines = [f"{number}. {name}: {meaning}" for number, (name, meaning) in enumerate(told, start=1)]
    names = ", ".join(name for name, _ in told)
    return (f"{_title(one)} {names}.", "\n".join(lines)) if told else None


MAKERS: Mapping[str, Callable[[Docstring], Pair | None]] = {
    "kind": _kind,
    "count": _count,
    "summary": _summary,
    "returns": _returns,
    "one": _explained(1, 1),
    "two": _explained(2, 2),
    "three": _explained(3, 3),
    "detail": _explained(4, SENTENCES),
    "parameters": _described,
}
"""What each form asks about and its answer; None where the docstring has none."""


def _title(one: Docstring) -> str:
    return _cut(SENTENCE.split(_plain(one.paragraphs[0]))[0].split(" "))


def _prose(one: Docstring) -> list[str]:
    """Sentences after the title, without sections."""
    rest = " ".join(SENTENCE.split(_plain(one.paragraphs[0]))[1:])
    kept = (part for part in one.paragraphs[1:] if not part.startswith(NO_PROSE))
    return [sentence for part in (rest, *kept) for sentence in _sentences(part)]


def _arguments(one: Docstring) -> list[tuple[str, str]]:
    """Names and the first sentence of what is said of each, as far as there is one."""
    parts = NAME.split(_plain(_section(one, *ARGUMENTS)))[1:]
    told = [(name, _sentences(text, inside=True)) for name, text in zip(parts[::2], parts[1::2], strict=True)]
    return [(name, sentences[0]) for name, sentences in told if sentences][:ITEMS]


def _section(one: Docstring, *titles: str) -> str:
    """What stands below one of these titles, on one line; empty: nothing."""
    for title in titles:
        for at, part in enumerate(one.paragraphs):
            if part.startswith((f"{title} ", f"{title}:")):
                return " ".join([part[len(title) :].lstrip(" :"), *_following(one.paragraphs[at + 1 :])])
    return ""


def _following(paragraphs: Sequence[str]) -> Iterator[str]:
    """Further parameters, each in a paragraph of its own."""
    for part in paragraphs:
        found = NAME.match(_plain(part))
        if not found or found[1] in SECTIONS:
            return
        yield part


def _sentences(text: str, inside: bool = False) -> list[str]:
    """Those in plain English; `inside`: what stands before the first capital, a type say, is passed over."""
    clean = _plain(text)
    if inside:
        found = re.search(r"(?:^| )([A-Z][a-z']* [a-z].*)", clean)
        clean = found[1] if found else ""
    return [one for one in SENTENCE.split(clean) if PLAIN.fullmatch(one) and FEWEST <= len(one.split()) <= MOST]


def _plain(text: str) -> str:
    """Without marks of formatting."""
    return " ".join(MARKUP.sub("", text).split())


def _cut(parts: Sequence[str]) -> str:
    """As many of the parts as have ASKED words together, at least one."""
    kept = list(parts[:1])
    for part in parts[1:]:
        if len(" ".join([*kept, part]).split()) > ASKED:
            break
        kept.append(part)
    return " ".join(kept)
