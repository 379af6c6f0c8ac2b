"""What holds for every test holds here, too."""

from __future__ import annotations

from tests.conftest import one_torch_thread, process_after_file, process_after_test

__all__ = ["one_torch_thread", "process_after_file", "process_after_test"]
