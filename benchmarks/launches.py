"""How many kernels a call launches, counted on any machine: the operators that it runs on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

FREE = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::_unsafe_view")


class _Counter(TorchDispatchMode):
    """Counts the operators that compute or copy; what allocates or gives another view of a tensor launches nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        self.count += not (func.is_view or func._schema.name in FREE)
        return func(*args, **(kwargs or {}))


def launches(call: Callable[[], object]) -> int:
    """Return the operators that a call runs on its device. A GPU launches a kernel for each, or a few."""
    counter = _Counter()
    with counter:
        call()
    return counter.count
