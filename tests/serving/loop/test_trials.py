"""A challenger goes from shadow to canary to champion, or is taken back; nobody's request is lost on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pliant.registry.releases import RegistryRelease
from pliant.rollout.events import Label
from pliant.serving.http.api_errors import ApiError
from pliant.serving.loop import trial
from pliant.serving.loop.trial import Tried
from tests.serving.loop.trial_service import CONFIG, Answer, Record, Service, serving

pytestmark = pytest.mark.virtual
RELEASE = RegistryRelease("bins", 2, 1, {"m": 2}, {})


@pytest.fixture(autouse=True)
def known_secret(monkeypatch) -> None:
    """Draw the same arms each time: a share of a few keys is a matter of chance."""
    monkeypatch.setattr(trial, "token_hex", lambda count: "0" * 2 * count)


def good(_value: float, answer: Answer) -> Answer:
    return answer


def other(_value: float, answer: Answer) -> Answer:
    answer.value += 1
    return answer


def failing(_value: float, _answer: Answer) -> Answer:
    raise RuntimeError("a bug of the challenger")


@pytest.fixture
def service(tmp_path):
    """A service whose good challenger is in shadow."""
    return serving(tmp_path, good)


async def test_a_good_one_is_copied_then_takes_a_share_and_is_promoted_and_every_request_has_one_answer(
    service, tmp_path
):
    assert service.trials.to_dict()["stage"] == "shadow" and service.generations.challenger is not None
    answers = await service.load(60)  # half are copied, by chance: 50 copies, which end shadow, are 5 deviations off
    assert {answer.number for answer in answers} == {1}, "in shadow only the champion answers clients"
    copies = [entry for entry in service.answered if entry[2]]
    assert 10 < len(copies) < 50 and {number for _, number, _ in copies} == {2}
    answers += await service.load(490, 60)
    assert [answer.value for answer in answers] == [float(value) for value in range(550)]
    by_canary = [answer for answer in answers if answer.number == 3]
    assert len(by_canary) >= 50, "the canary's models started anew, and answered its share"
    await asyncio.sleep(2)
    assert service.record.promoted == [2] and service.record.states[:2] == ["shadow", "canary"]
    assert service.generations.present.number == 3 and service.trials.to_dict() is None
    assert service.events[-1][0] == "champion" and not (tmp_path / "trial.json").exists()
    clients = [value for value, _, copy in service.answered if not copy]
    assert sorted(clients) == sorted({*clients}) and len(clients) == 550


async def test_processes_of_the_lowest_priority_answer_no_client_even_where_shadow_is_followed_by_promotion(tmp_path):
    service = Service(tmp_path, good)
    object.__setattr__(service.parts, "config", replace(CONFIG, shadow_requests=250, steps=(1.0,)))
    service.record.promote = lambda release, reason: service.record._answer()
    await asyncio.sleep(6)
    service.record.down = True  # so that the decision stays unwritten
    answers = await service.load(600)
    assert service.trials.to_dict()["stage"] == "promoted"
    assert {answer.number for answer in answers} == {1}
    await service.stop()


async def test_a_worse_one_is_taken_back_in_shadow_with_the_reason_and_not_tried_again(tmp_path):
    service = Service(tmp_path, other)
    await asyncio.sleep(6)
    service.labelled = True
    answers = await service.load(200)
    await asyncio.sleep(60)
    assert {answer.number for answer in answers} == {1}
    number, state, reason = service.record.marks[-1]
    assert (number, state) == (2, "taken back") and "taken back in shadow after" in reason
    assert service.generations.challenger is None and service.starts == 1
    assert service.events[-1] == ("rollback", {"release": 2, "reason": reason})
    await service.stop()


async def test_one_that_answers_otherwise_without_labels_stays_at_its_first_share_and_a_person_is_asked(tmp_path):
    service = Service(tmp_path, other)
    await asyncio.sleep(6)
    await service.load(3200)
    assert service.trials.to_dict()["share"] == 0.2
    number, state, reason = service.record.marks[-1]
    assert (number, state) == (2, "canary") and "asks: nothing proves that its answers are less than 3 points" in reason
    assert reason.endswith("`pliant promote bins 2` serves it") and service.events[-1][1]["reason"] == reason
    await service.stop()


async def test_one_that_fails_as_a_canary_costs_no_request_and_is_taken_back(service):
    await service.to_canary()
    service.challenge = failing
    answers = await service.load(300, 150)
    assert [answer.value for answer in answers] == [float(value) for value in range(150, 450)]
    assert {answer.number for answer in answers} == {1}
    await asyncio.sleep(2)
    assert service.record.states[-1] == "taken back" and "failed answers" in service.record.marks[-1][2]


async def test_the_same_key_stays_with_the_same_release(service):
    await service.to_canary()
    numbers = {}
    for turn in range(3):
        for key in range(20):
            answer = await asyncio.create_task(service.add(float(turn), f"client {key}"))
            numbers.setdefault(key, set()).add(answer.number)
    assert all(len(seen) == 1 for seen in numbers.values())
    assert {number for seen in numbers.values() for number in seen} == {1, 3}


async def test_a_clients_mistake_is_nobodys_fault_and_is_not_answered_twice(service):
    await service.to_canary()
    mistakes, before = 0, service.trials.to_dict()["evidence"]

    async def wrong(_arrived: float):
        nonlocal mistakes
        mistakes += 1
        raise ApiError(422, "invalid", "text is missing")

    for _ in range(30):
        try:
            await asyncio.create_task(service.trials.trial.answer(wrong, asyncio.get_running_loop().time(), 1.0))
        except ApiError as error:
            assert error.status == 422
    assert 30 <= mistakes < 60, "the champion, too, was given what the challenger refused"
    assert service.trials.to_dict()["evidence"] <= before


async def test_a_restarted_service_goes_on_where_it_was(tmp_path):
    first = Service(tmp_path, good)
    await asyncio.sleep(6)
    await first.load(60)
    copies = first.trials.to_dict()["copies"]
    await first.stop()
    second = Service(tmp_path, good, first.record)
    await asyncio.sleep(6)
    assert copies > 5 and second.trials.to_dict()["copies"] == copies
    await second.stop()
    (tmp_path / "trial.json").write_text('{"release": 2, "rollout": {}}')
    third = Service(tmp_path, good, first.record)
    await asyncio.sleep(6)
    assert third.trials.to_dict()["copies"] == 0
    await third.stop()


async def test_another_champion_ends_the_trial_and_without_a_challenger_nothing_is_started(tmp_path):
    service = Service(tmp_path, good)
    await asyncio.sleep(6)
    service.record.waits = False
    await asyncio.sleep(31)
    assert service.trials.to_dict() is None and service.generations.challenger is None
    assert "another release is served or tried by now" in service.record.marks[-1][2]
    await service.stop()
    quiet = Service(tmp_path, good, Record(waits=False))
    await asyncio.sleep(100)
    assert quiet.starts == 0 and quiet.trials.to_dict() is None
    assert (await quiet.add(1.0, "k")).number == 1
    await quiet.stop()


async def test_one_that_cannot_be_started_is_taken_back_and_not_tried_again(tmp_path):
    service = Service(tmp_path, good)

    async def refuse(_catalog):
        service.starts += 1
        raise MemoryError("no room")

    object.__setattr__(service.parts, "start", refuse)
    await asyncio.sleep(100)
    assert service.starts == 1 and service.record.states == ["taken back"]
    assert "it could not be started: no room" in service.record.marks[0][2]
    assert [kind for kind, _ in service.events] == ["rollback"]
    await service.stop()


async def test_labels_of_either_arm_are_compared_in_pairs(service):
    await service.load(60)
    copied = next(value for value, _, copy in service.answered if copy)
    trial = service.trials.trial
    assert f"1-{copied}" in trial.pairs.latest
    trial.label(f"1-{copied}", str(copied))
    trial.label("unknown", "any")
    assert f"1-{copied}" not in trial.pairs.latest


async def test_labels_that_come_before_the_copy_is_answered_count_when_it_is(service):
    trial, events = service.trials.trial, []
    trial.feed = events.append
    trial.label("1-7.0", "7.0")
    request, both = Tried("request", None, 0.0, 0.0, None, "", True), [Answer(7.0, number).served for number in (1, 2)]
    for _ in range(2):
        trial._compare(request, *both, "champion")
    (label,) = [event for event in events if isinstance(event, Label)]
    assert (label.id, label.champion, label.challenger, label.seen) == ("1-7.0", True, True, "champion")


async def test_labels_of_pairs_that_are_on_disk_alone_count_once_also_after_a_restart(tmp_path):
    service = Service(tmp_path, good)
    await asyncio.sleep(6)
    await service.load(60)
    ids = list(service.trials.trial.pairs.latest)
    await service.stop()
    again = Service(tmp_path, good)
    await asyncio.sleep(6)
    trial = again.trials.trial
    assert ids and not trial.pairs.latest
    for id in (*ids, *ids):
        trial.label(id, id.partition("-")[2], "phones")
    await asyncio.sleep(6)
    assert "the slice phones" in trial.rollout.floors.slices
    assert trial.rollout.comparisons["accuracy"].evidence.outcomes == len(ids)
    trial.label(ids[0], "0")
    await asyncio.sleep(6)
    assert trial.rollout.comparisons["accuracy"].evidence.outcomes == len(ids)
    await again.stop()


async def guarded(folder, challenge=good, record=None) -> Service:
    """Return a service whose challenger has been promoted; its guard takes ten minutes."""
    service = Service(folder, challenge, record)
    object.__setattr__(service.parts, "config", replace(CONFIG, guard_seconds=600.0))
    await asyncio.sleep(6)
    await service.load(600)
    await asyncio.sleep(1)
    assert service.record.promoted == [2] and service.trials.to_dict()["stage"] == "guard"
    assert service.generations.present.catalog == "release 2" and service.generations.former_beside
    assert [kind for kind, _ in service.events[-2:]] == ["champion", "trial"]
    return service


async def test_after_its_promotion_the_former_one_answers_a_few_until_the_guard_ends(tmp_path):
    service = await guarded(tmp_path)
    answers = await service.load(200, 600)
    assert 1 <= sum(answer.number == 1 for answer in answers) <= 25
    pairs = [value for value, number, copy in service.answered if copy and number == 1 and value >= 600]
    assert 1 <= len(pairs) <= 25, "the former one gets copies of as many of the new one's"
    await asyncio.sleep(600)
    assert service.trials.to_dict() is None and service.generations.challenger is None
    assert not (tmp_path / "trial.json").exists() and service.record.promoted == [2]
    assert [kind for kind, _ in service.events].count("champion") == 1
    await service.stop()


async def test_one_that_goes_wrong_in_its_guard_is_undone_by_the_registry_and_the_former_one_answers_at_once(tmp_path):
    service = await guarded(tmp_path)
    service.challenge, service.labelled, service.record.down = other, True, True
    await service.load(1000, 600)
    assert {answer.number for answer in await service.load(20, 1600)} == {1}, "the registry is gone, the decision holds"
    service.record.down = False
    await asyncio.sleep(60)
    number, state, reason = service.record.marks[-1]
    assert (number, state) == (2, "taken back") and "h after its promotion" in reason
    assert service.generations.present.catalog == "release 1" and service.trials.to_dict() is None
    assert service.events[-1] == ("rollback", {"release": 2, "reason": reason})
    await service.stop()


async def test_a_service_that_is_restarted_in_a_guard_goes_on_with_it(tmp_path):
    first = await guarded(tmp_path)
    await first.stop()
    second = Service(tmp_path, good, first.record)
    await asyncio.sleep(6)
    assert second.trials.to_dict()["stage"] == "guard" and second.generations.challenger.catalog == "release 1"
    assert {answer.number for answer in await second.load(100)} == {1, 2} and second.events == []
    await second.stop()


@pytest.mark.parametrize("what", ["rolled back by hand", "another one waits", "the former one is gone"])
async def test_a_guard_ends_where_another_release_comes_or_its_former_one_is_gone(what, tmp_path):
    service = await guarded(tmp_path)
    if what == "rolled back by hand":
        service.record.promoted.clear()
        await service.refresh()
        assert service.generations.present.catalog == "release 1"
        service.record.waits = False
    elif what == "another one waits":
        service.record.challenger = lambda: replace(RELEASE, number=3)
    else:
        service.generations.challenger.driver.alive = False
    await asyncio.sleep(32)
    trial = service.trials.to_dict()
    assert trial is None or (trial["release"], trial["stage"]) == (3, "shadow")
    assert not service.generations.former_beside and service.record.states.count("taken back") == 0
    await service.stop()
