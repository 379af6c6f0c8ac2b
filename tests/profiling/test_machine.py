"""What a machine says of itself and of what was used."""

from __future__ import annotations

import torch

from pliant.profiling.machine import Energy, arithmetic, used


def test_a_counter_of_energy_that_began_anew_goes_on_and_parts_of_a_processor_count_once(tmp_path):
    assert Energy(tmp_path).read() is None
    for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "max_energy_range_uj").write_text("9999999\n")
        (tmp_path / zone / "energy_uj").write_text("9000000\n")
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()  # as if it could not be read
    energy = Energy(tmp_path)
    assert energy.read() == 0.0
    for count, joules in ((9_500_000, 0.5), (1_000_000, 2.0)):
        (tmp_path / "intel-rapl:0" / "energy_uj").write_text(f"{count}\n")
        assert energy.read() == joules


def test_what_was_used_only_grows_and_the_machine_is_named_with_its_threads():
    before, now = used(), used()
    assert all(now[name] >= before[name] for name in ("seconds", "cpu_seconds"))
    assert arithmetic()["threads"] == torch.get_num_threads() and arithmetic()["processor"]
