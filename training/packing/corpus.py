"""The embedded corpus of the generator: questions about docstrings, answered by the docstrings' own parts.

As in instruction data, the form of a question says roughly how long its answer is:

    kind         is it a class, a function, a method or a module?   a word
    count        how many names are there?                          a number
    summary      what is it about?                                  a sentence
    returns      what does it return?                               a sentence or some
    one, two, three, detail   what more is there to say?            so many sentences, or all up to SENTENCES
    parameters   what do these parameters mean?                     a numbered list, a line each

Answers are plain English sentences without formulas, code and markup, which a small model learns in a minute. The form
comes at the end of a question, where a predictor that reads the end of a long prompt still sees it. All turns of a file
are for fitting, or all are held out (training/docstrings.py). Knows no tokenizer and no model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from pliant.errors import InputError
from pliant.training import docstrings
from pliant.training.data import Split
from pliant.training.docstrings import Docstring

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ ('<|assistant|>' if message['role'] == 'assistant' else '<|user|>') + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Every message but the assistant's is part of a question, system messages too."""

PER_DOCSTRING = 4  # turns, at most
SHORT_SHARE = 0.15  # share of docstrings with a question of SHORT, though nearly all could answer one
ASKED = 60  # words of a question's matter, at most
SENTENCES = 8  # of an answer, at most
FEWEST, MOST = 3, 40  # words of a sentence, at least and at most
ITEMS = 8  # of a list, at most
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
"""The matter of a question, and its answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer. `source`: the file that they come from."""

    source: str
    form: str  # one of FORMS
    ask: str
    answer: str

    @property
    def prompt(self) -> str:
        """The question, as the chat template renders it."""
        return f"{USER}{self.ask}{ASSISTANT}"

    @property
    def text(self) -> str:
        """The question with the answer and its end token."""
        return f"{self.prompt}{self.answer}{END}"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The turns, and the split of their indices. `fingerprint` identifies both."""

    turns: tuple[Turn, ...]
    split: Split
    fingerprint: str


def load(seed: int = 0, packages: Sequence[str] = docstrings.PACKAGES) -> Corpus:
    """Return the corpus of the installed ones of `packages`. The same seed gives the same corpus.

    Raises `InputError` if fewer than two packages are installed.
    """
    rng = np.random.default_rng(seed)
    turns = tuple(turn for docstring in docstrings.corpus(packages) for turn in turns_of(docstring, rng))
    split = docstrings.split([turn.source for turn in turns], seed, docstrings.SHARES)
    mark = sha256(repr(turns).encode())
    for part in PARTS:
        mark.update(getattr(split, part).tobytes())
    return Corpus(turns, split, f"sha256:{mark.hexdigest()}")


def select(corpus: Corpus, part: str) -> tuple[Turn, ...]:
    """Return the turns of one of PARTS. Raises `InputError` for another part."""
    if part not in PARTS:
        raise InputError("part", part, f"one of {', '.join(PARTS)}")
    return tuple(corpus.turns[row] for row in getattr(corpus.split, part))


def turns_of(docstring: Docstring, rng: np.random.Generator) -> list[Turn]:
    """Return up to PER_DOCSTRING turns, drawn by `rng` from the forms that the docstring can answer."""
    forms = [item for item in MAKERS.items() if item[0] not in SHORT or rng.random() < SHORT_SHARE]
    able = [(form, pair) for form, make in forms if (pair := make(docstring))]
    chosen = sorted(rng.permutation(len(able))[:PER_DOCSTRING])
    return [_turn(docstring.source, form, pair, rng) for form, pair in (able[at] for at in chosen)]


def _turn(source: str, form: str, pair: Pair, rng: np.random.Generator) -> Turn:
    (matter, answer), phrasings = pair, FORMS[form]
    return Turn(source, form, f"{matter} {phrasings[rng.integers(len(phrasings))]}", answer)


def _kind(docstring: Docstring) -> Pair | None:
    return _title(docstring), f"a {docstring.kind}"


def _count(docstring: Docstring) -> Pair | None:
    names = [name for name, _ in _arguments(docstring)]
    return (", ".join(names), str(len(names))) if names else None


def _summary(docstring: Docstring) -> Pair | None:
    """Return the prose after the title, with the title as its answer."""
    prose, title = _prose(docstring), _sentences(docstring.paragraphs[0])[:1]
    return (_cut(prose), title[0]) if prose and title else None


def _returns(docstring: Docstring) -> Pair | None:
    sentences = _sentences(_section(docstring, "Returns", "Yields"), inside=True)
    return (_title(docstring), " ".join(sentences[:3])) if sentences else None


def _explained(least: int, most: int) -> Callable[[Docstring], Pair | None]:
    """Return a maker of up to `most` sentences after the title, if there are at least `least`."""

    def make(docstring: Docstring) -> Pair | None:
        prose = _prose(docstring)
        return (_title(docstring), " ".join(prose[:most])) if len(prose) >= least else None

    return make


def _described(docstring: Docstring) -> Pair | None:
    """Return the names of the arguments, with a numbered list of their meanings as the answer."""
    arguments = _arguments(docstring)
    lines = [f"{number}. {name}: {meaning}" for number, (name, meaning) in enumerate(arguments, start=1)]
    names = ", ".join(name for name, _ in arguments)
    return (f"{_title(docstring)} {names}.", "\n".join(lines)) if arguments else None


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
"""Form -> what makes its question's matter and its answer; None if the docstring has no answer."""


def _title(docstring: Docstring) -> str:
    return _cut(SENTENCE.split(_plain(docstring.paragraphs[0]))[0].split(" "))


def _prose(docstring: Docstring) -> list[str]:
    """Return the sentences after the title, without those of sections."""
    rest = " ".join(SENTENCE.split(_plain(docstring.paragraphs[0]))[1:])
    paragraphs = (paragraph for paragraph in docstring.paragraphs[1:] if not paragraph.startswith(NO_PROSE))
    return [sentence for paragraph in (rest, *paragraphs) for sentence in _sentences(paragraph)]


def _arguments(docstring: Docstring) -> list[tuple[str, str]]:
    """Return names with the first sentence about each, without the names that have none."""
    pieces = NAME.split(_plain(_section(docstring, *ARGUMENTS)))[1:]
    described = [(name, _sentences(text, inside=True)) for name, text in zip(pieces[::2], pieces[1::2], strict=True)]
    return [(name, sentences[0]) for name, sentences in described if sentences][:ITEMS]


def _section(docstring: Docstring, *titles: str) -> str:
    """Return the text of the first section with one of these titles, on one line; empty if there is none."""
    for title in titles:
        for at, paragraph in enumerate(docstring.paragraphs):
            if paragraph.startswith((f"{title} ", f"{title}:")):
                return " ".join([paragraph[len(title) :].lstrip(" :"), *_following(docstring.paragraphs[at + 1 :])])
    return ""


def _following(paragraphs: Sequence[str]) -> Iterator[str]:
    """Yield the next paragraphs as long as each describes another parameter."""
    for paragraph in paragraphs:
        name = NAME.match(_plain(paragraph))
        if not name or name[1] in SECTIONS:
            return
        yield paragraph


def _sentences(text: str, inside: bool = False) -> list[str]:
    """Return the plain English sentences. `inside`: skip what precedes the first capital, such as a type."""
    clean = _plain(text)
    if inside:
        prose = re.search(r"(?:^| )([A-Z][a-z']* [a-z].*)", clean)
        clean = prose[1] if prose else ""
    return [
        sentence
        for sentence in SENTENCE.split(clean)
        if PLAIN.fullmatch(sentence) and FEWEST <= len(sentence.split()) <= MOST
    ]


def _plain(text: str) -> str:
    return " ".join(MARKUP.sub("", text).split())


def _cut(pieces: Sequence[str]) -> str:
    """Join as many pieces as have at most ASKED words together, and at least one."""
    kept = list(pieces[:1])
    for piece in pieces[1:]:
        if len(" ".join([*kept, piece]).split()) > ASKED:
            break
        kept.append(piece)
    return " ".join(kept)
