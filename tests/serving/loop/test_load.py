"""A service that gets twice its load says so after hours; days that are like days before are no change, nor are bursts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pliant.benchmarks.watch import streams
from pliant.errors import InputError
from pliant.serving.loop.load import (
    DAYS,
    LEAST,
    MINUTE,
    NAME,
    SLOTS,
    STREAM,
    WINDOW,
    LoadWatch,
    load_watch_from,
)
from pliant.serving.loop.observe import DriftCounter
from pliant.serving.loop.watcher import Watcher, WatcherParts, WatchMetrics, new_watches
from pliant.serving.request_context import EVIDENCE, holding
from pliant.serving.state_file import StateFile
from tests.serving.loop.test_watcher import Service

DAY, PER_WINDOW = 86_400, WINDOW // MINUTE


def course_of(days: int, seed: int = 0) -> np.ndarray:
    """Return requests a minute [days * 1440]: a day's course from 40 to 160, its noise, and two bursts a day of 4 times
    the load for 8 minutes."""
    rng = np.random.default_rng(seed)
    minutes = np.arange(days * 1440)
    usual = 100 * (1 + 0.6 * np.sin(2 * np.pi * minutes / 1440)) * np.exp(rng.normal(0, 0.1, days)).repeat(1440)
    for at in rng.integers(0, len(minutes) - 8, 2 * days):
        usual[at : at + 8] *= 4
    return rng.poisson(usual).astype(float)


def feed(watch: LoadWatch, minutes: np.ndarray, start: int = 0) -> list[tuple[int, str]]:
    """Return the windows since `start` (seconds) in which an alarm came, with its sentence, of requests [minutes]."""
    alarms = []
    for place, requests in enumerate(minutes):
        alarm = watch.look(requests, start + MINUTE * place + 30)
        if alarm is not None:
            alarms.append((place // PER_WINDOW, alarm.sentence))
    return alarms


@pytest.mark.parametrize(
    ("days", "from_day", "factor"), [(30, 0, 1.0), (16, 14, 0.5), (LEAST, 1, 2.0)], ids=["usual", "half", "too early"]
)
def test_weeks_with_a_course_and_bursts_and_less_load_are_quiet_and_so_is_what_is_not_known_yet(days, from_day, factor):
    minutes, watch = course_of(days), LoadWatch()
    minutes[from_day * 1440 :] *= factor
    assert feed(watch, minutes) == []
    rows = [(row.state, row.observations) for row in watch.figures()]
    assert rows == ([("watching", (days - LEAST) * SLOTS - 1)] if days > LEAST else [])


def test_twice_the_load_is_an_alarm_after_hours_and_says_how_much_it_is():
    minutes, change = course_of(16), 14 * 1440 + 300
    minutes[change:] *= 2
    ((window, sentence),) = feed(LoadWatch(), minutes)
    assert 1 <= window - change // PER_WINDOW <= 24  # eight hours
    assert sentence.startswith("load: ") and sentence.endswith(" times what is usual at this time of day")
    assert float(sentence.split()[1]) == pytest.approx(2.0, abs=0.5)


def test_a_release_changes_nothing_but_an_alarm_is_learnt_anew():
    minutes, watch = course_of(16), LoadWatch()
    minutes[14 * 1440 :] *= 2
    half = 10 * 1440
    feed(watch, minutes[:half])
    before = watch.to_dict()
    watch.release()
    assert watch.to_dict() == before
    assert len(feed(watch, minutes[half:], 10 * DAY)) == 1
    watch.release()
    assert watch.to_dict() == LoadWatch().to_dict()


def test_a_state_goes_on_alike_after_a_round_trip():
    minutes = course_of(16)
    minutes[14 * 1440 :] *= 2
    whole, first = LoadWatch(), LoadWatch()
    expected = feed(whole, minutes)
    place = 9 * 1440
    feed(first, minutes[:place])
    again = load_watch_from(json.loads(json.dumps(first.to_dict(), allow_nan=False)))
    assert again.to_dict() == first.to_dict()
    ((window, _),) = feed(again, minutes[place:], 9 * DAY)
    assert abs(window + 9 * SLOTS - expected[0][0]) <= 1  # the window that was under way is not known


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"course": {}, "detector": {}, "ratios": []},
        {**LoadWatch().to_dict(), "ratios": ["x"]},
        {**LoadWatch().to_dict(), "course": {"days": [[-1.0]] * SLOTS, "closed": 0}},
        {**LoadWatch().to_dict(), "course": {"days": [[1.0] * (DAYS + 1)] * SLOTS, "closed": 0}},
        {**LoadWatch().to_dict(), "course": {"days": [[float("inf")]] * SLOTS, "closed": 0}},
    ],
)
def test_a_corrupt_state_is_refused(content):
    with pytest.raises(InputError):
        load_watch_from(content)


def windows(watch: LoadWatch, first: int, requests: float, looks: int = PER_WINDOW, many: int = 1) -> list:
    """Return what windows from number `first` on, with so many looks each, say when the next one begins."""
    ratios = []
    for number in range(first, first + many + 1):
        for minute in range(looks if number < first + many else 1):
            ratio = watch.ratio(requests, number * WINDOW + MINUTE * minute)
            ratios += [ratio] if minute == 0 else []
    return ratios[1:]


def test_a_window_is_compared_with_the_same_time_of_former_days_and_counts_once_and_if_somebody_looked():
    watch = LoadWatch()
    for day in range(LEAST):
        assert windows(watch, day * SLOTS, 7.0) == [None]
    last = LEAST * SLOTS
    assert windows(watch, last, 15.0) == [1.0]
    before = watch.to_dict()
    assert windows(watch, last - 10, 15.0, many=10) == [None] * 10, "a clock that is set back counts nothing twice"
    assert watch.to_dict() == before
    assert windows(watch, last + 5, 15.0) == [None], "another time of day"
    assert windows(watch, last + SLOTS, 1.0, looks=10) == [None], "nobody has looked for long"


class Loaded(Service):
    """A service whose requests are counted as those of every system are; it was started again after days of a course."""

    def __init__(self, folder, minutes) -> None:
        former = LoadWatch()
        feed(former, minutes)
        state = {"release": 1, "alarms": [], "watch": new_watches().whole.to_dict(), "load": former.to_dict()}
        StateFile(folder / "bins.json").write(state)
        super().__init__(folder)
        self.at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=len(minutes))

    async def serve(self, minutes, tenants=("",)) -> None:
        for requests in minutes:
            for at in range(int(requests)):
                with holding(EVIDENCE, tenants[at % len(tenants)]):
                    self.drift.arrived()
            await self.watcher.look()
            self.at += timedelta(seconds=MINUTE)


async def test_a_watcher_counts_requests_and_raises_what_it_says(tmp_path):
    minutes = course_of(11)
    minutes[10 * 1440 :] *= 3
    service = Loaded(tmp_path, minutes[: 10 * 1440 - 120])
    await service.serve(minutes[10 * 1440 - 120 : 10 * 1440])
    service.release = 2
    await service.serve(minutes[10 * 1440 : 10 * 1440 + 600])
    (alarm,) = service.watcher.to_dict()["alarms"]
    assert alarm["sentence"].startswith("load: ") and service.events == [], "no training answers it"
    assert service.sample("pliant_drift", stream=NAME) == 1
    service.watcher.save()
    assert load_watch_from(service.file.read()["load"]).detector.alarm is not None
    (row,) = service.watcher.to_dict()["streams"]
    assert (row["stream"], row["state"]) == ("load", "alarm")
    service.release = 3
    await service.watcher.look()
    assert service.watcher.to_dict()["streams"] == service.watcher.to_dict()["alarms"] == []


def test_a_course_that_cannot_be_read_is_learnt_anew(tmp_path, caplog):
    file = StateFile(tmp_path / "bins.json")
    file.write({"release": 1, "alarms": [], "watch": new_watches().whole.to_dict(), "load": {}})
    Watcher(WatcherParts("bins", DriftCounter(), file, lambda: (1, ""), WatchMetrics(CollectorRegistry())))
    assert "the course of the load cannot be read" in caplog.text


@pytest.mark.skipif(bool(streams.missing()), reason=streams.missing() or "the data are here")
@pytest.mark.slow
def test_months_of_recorded_days_are_quiet_and_twice_their_load_is_noticed():
    recorded = streams.load_minutes()  # [days, 1410]
    recorded = np.concatenate([recorded, recorded[:, :-31:-1]], axis=1)  # the last half an hour again, backwards
    rng, delays = np.random.default_rng(0), []
    for _ in range(5):
        assert feed(LoadWatch(), recorded[rng.integers(len(recorded), size=30)].ravel()) == []
    for _ in range(5):
        minutes, change = recorded[rng.integers(len(recorded), size=18)].ravel(), int(rng.integers(10, 15) * 1440)
        minutes[change:] *= 2
        ((window, _),) = feed(LoadWatch(), minutes)
        delays.append(window - change // PER_WINDOW)
    assert min(delays) > 0 and np.median(delays) <= 24
    assert STREAM.tolerance == 2.0
