"""An output takes progress until its end, which comes once."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import pytest

from pliant.packing.engine.submission import Progress, Sampling, Submission, TokenLogprobs
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.engine import InFlightOutput

END = 0
PLAIN = Sampling()


@dataclass
class Writer:
    """Writes a character a token; token 9 completes a stop string."""

    waiting: int = 0
    ends: int = 0
    tokens: list[int] = field(default_factory=list)

    def put(self, token: int, may_stop: bool) -> bool:
        self.tokens.append(token)
        self.waiting += 1
        return token == 9 and may_stop

    def end(self) -> None:
        self.ends += 1


def output(max_open: float = 100, sampling: Sampling = PLAIN, silent: bool = False) -> tuple[InFlightOutput, list[str]]:
    seen: list[str] = []
    first = Submission(Prompt(3, 0.0, 2, 50, (8.0,) * 8), (5, 6), sampling)
    listen = lambda each: seen.append(each.finish)  # noqa: E731
    flight = InFlightOutput(first, Writer(), frozenset({END}), listen, max_open, silent)
    return flight, seen


def progress(*tokens: int, finished: str = "", **rest) -> Progress:
    fields = {"queued": 0.5, "preemptions": 1, "recomputed": 7, "generated": 0, **rest}
    return Progress(id=3, tokens=tokens, finished=finished, **fields)


def test_who_listens_is_let_go_at_the_end():
    flight, seen = output()
    listening = weakref.ref(flight.on_progress)
    flight.take(progress(7, finished="length"))
    assert seen == ["length"] and listening() is None


def test_tokens_are_written_and_whoever_listens_is_called():
    flight, seen = output()
    assert not flight.begun and flight.id == 3
    flight.take(progress(7, 8))
    assert flight.begun and flight.tokens == flight.writer.tokens == [7, 8]
    assert (flight.queued, flight.preemptions, flight.recomputed) == (0.5, 1, 7)
    flight.take(progress())
    assert seen == [""] and flight.finish == ""
    submission = flight.submission()
    assert (submission.ids, submission.generated) == ((5, 6, 7, 8), 2)


@pytest.mark.parametrize(
    ("tokens", "finished", "finish", "written"),
    [((7, END), "stop", "stop", [7]), ((7,), "length", "length", [7]), ((), "cancelled", "cancelled", [])],
)
def test_it_ends_as_the_engine_says_and_a_token_that_ends_it_has_no_text(tokens, finished, finish, written):
    flight, seen = output()
    flight.take(progress(*tokens, finished=finished))
    assert (flight.finish, seen, flight.writer.ends) == (finish, [finish], 1)
    assert flight.writer.tokens == written and not flight.at_stop_string
    assert flight.begun


def test_a_stop_string_ends_it_and_nothing_follows():
    flight, seen = output()
    flight.take(progress(7, 9, 8))
    assert (flight.finish, flight.at_stop_string, flight.tokens) == ("stop", True, [7, 9])
    flight.take(progress(8, finished="length"))
    flight.end("failed", "gone")
    assert (seen, flight.tokens, flight.fault, flight.writer.ends) == (["stop"], [7, 9], "", 1)


def test_one_whose_text_nobody_reads_ends_beyond_its_most_characters():
    flight, _ = output(max_open=3)
    flight.take(progress(7, 7, 7))
    assert flight.finish == ""
    flight.take(progress(7))
    assert flight.finish == "slow"


def test_seconds_of_the_device_are_summed_even_after_the_end_and_other_figures_are_the_last_before_it():
    flight, _ = output()
    flight.take(progress(7, seconds=0.5))
    flight.take(progress(7, finished="length", seconds=0.25, queued=0.75, preemptions=2, recomputed=9))
    flight.take(progress(seconds=0.125, queued=9.0, preemptions=9, recomputed=99))
    assert flight.seconds == 0.875
    assert (flight.queued, flight.preemptions, flight.recomputed) == (0.75, 2, 9)


def test_log_probabilities_are_kept_for_the_tokens_that_are_and_the_prompts_once():
    flight, _ = output()
    first, second, third = (TokenLogprobs(-float(number)) for number in range(3))
    flight.take(progress(7, logprobs=(first,), prompt_logprobs=(third,)))
    flight.take(progress(9, 8, logprobs=(second, third)))
    assert (flight.finish, flight.tokens) == ("stop", [7, 9])
    assert (flight.logprobs, flight.prompt_logprobs) == ([first, second], (third,))


def test_no_stop_string_ends_it_before_its_least_tokens():
    flight, _ = output(sampling=Sampling(min_tokens=2))
    flight.take(progress(9, 9))
    assert flight.finish == ""
    flight.take(progress(9))
    assert (flight.finish, flight.tokens) == ("stop", [9, 9, 9])


@pytest.mark.parametrize("finished", ["", "stop", "length"])
def test_a_silent_one_ends_with_its_first_token_which_is_dropped(finished):
    flight, seen = output(silent=True)
    flight.take(progress())
    assert seen == []
    flight.take(progress(7, finished=finished, prompt_logprobs=(TokenLogprobs(-1.0),)))
    assert (flight.finish, flight.tokens, flight.writer.tokens, seen) == ("length", [], [], ["length"])
    assert flight.prompt_logprobs
