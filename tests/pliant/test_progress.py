"""Progress of parts of a longer piece of work."""

from pliant.progress import share, silent


def test_two_parts_move_one_bar_from_its_start_to_its_end_without_going_back():
    seen = []
    first, second = (share(lambda done, total: seen.append((done, total)), *part) for part in ((0, 80), (80, 100)))
    for part in (first, second):
        for done in range(5):
            part(done, 4)
    assert [total for _, total in seen] == [100] * 10
    assert [done for done, _ in seen] == [0, 20, 40, 60, 80, 80, 85, 90, 95, 100]


def test_a_part_without_any_steps_stays_at_its_start_and_silence_takes_any_report():
    seen = []
    share(lambda *at: seen.append(at), 20, 60)(0, 0)
    assert seen == [(20, 100)]
    assert silent(1, 2) is None
