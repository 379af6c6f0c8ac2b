"""The books of the pages that several sequences may read, since their prompts begin alike.

The keys and values of a page depend on nothing but the tokens up to its end. A prompt says what its first pages hold by
one number each (`beginnings`); what a running sequence has read under such a number, others take over instead of reading
it again. A page counts once, however many sequences use it. When its last one leaves, it stays as long as nobody needs
the space; the one that was used longest ago is forgotten first, and of one prompt's pages the last. (Prefix caching, as
in vLLM and SGLang.) Knows numbers and sequences, and neither tokens nor tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import numpy as np

from pliant.packing.scheduling.request import Prompt

_BITS = 63  # of a number: it stays a positive integer of 64 bits


class CommonPages:
    """Which pages are known by which numbers, and who uses them."""

    def __init__(self) -> None:
        self._users: dict[int, int] = {}  # number -> sequences that use the page now
        self._unused: dict[int, None] = {}  # numbers of pages without users, the one used longest ago first
        self._of: dict[int, list[int]] = {}  # sequence -> numbers of the pages that it uses

    @property
    def used(self) -> int:
        """Return the known pages that some sequence uses, each counted once."""
        return len(self._users) - len(self._unused)

    @property
    def unused(self) -> int:
        """Return the known pages that no sequence uses."""
        return len(self._unused)

    def used_without(self, ids: Sequence[int]) -> int:
        """Return what `used` will be when these sequences have left."""
        left = set(ids)
        return len({number for id, numbers in self._of.items() if id not in left for number in numbers})

    def known(self, beginnings: Sequence[int], in_use: bool = False, coming: Collection[int] = ()) -> int:
        """Return how many of these pages, from the first on without a gap, are known; `in_use`: and used by others.

        `coming`: numbers of pages that others will use before.
        """
        count = 0
        for number in beginnings:
            if number not in coming and not (self._users.get(number) if in_use else number in self._users):
                break
            count += 1
        return count

    def used_by(self, beginnings: Sequence[int], coming: Collection[int] = ()) -> list[int]:
        """Return the numbers of the pages that a sequence uses, for others too, once it has read these beginnings.

        `coming`: see `known`. A page behind a gap is not among them where one is known already: it reads its own.
        """
        known = self.known(beginnings, coming=coming)
        return [*beginnings[:known], *(number for number in beginnings[known:] if number not in self._users)]

    def take(self, id: int, numbers: Sequence[int]) -> None:
        """Let a sequence use known pages."""
        for number in numbers:
            self._users[number] += 1
            self._unused.pop(number, None)
        self._of.setdefault(id, []).extend(numbers)

    def keep(self, id: int, number: int) -> bool:
        """Make a page that a sequence has read known. Returns False if another page is known by this number."""
        if number in self._users:
            return False
        self._users[number] = 1
        self._of.setdefault(id, []).append(number)
        return True

    def replace(self, id: int, numbers: Sequence[int]) -> None:
        """Let a sequence use these pages and no others. Those that were not known are from now on."""
        self.leave(id)
        for number in numbers:
            self._users.setdefault(number, 0)
        self.take(id, numbers)

    def leave(self, id: int) -> None:
        """Note that a sequence uses no page any more. The last of its pages is the first to be forgotten.

        A page is of use to those alone who take all pages before it.
        """
        for number in reversed(self._of.pop(id, ())):
            self._users[number] -= 1
            if not self._users[number]:
                self._unused[number] = None

    def forget(self, room: int) -> tuple[int, ...]:
        """Forget unused pages beyond `room`, and return their numbers, in the order in which they were used last."""
        gone = list(self._unused)[: max(len(self._unused) - room, 0)]
        for number in gone:
            del self._unused[number], self._users[number]
        return tuple(gone)

    def check(self, running: Sequence[int]) -> None:
        """Raises AssertionError where the books contradict themselves or name a sequence that does not run."""
        counted: dict[int, int] = dict.fromkeys(self._users, 0)
        for numbers in self._of.values():
            assert len(set(numbers)) == len(numbers), "a page is used twice by one sequence"
            for number in numbers:
                counted[number] += 1
        assert counted == self._users, "users of common pages"
        assert set(self._unused) == {number for number, users in self._users.items() if not users}, "unused pages"
        assert set(self._of) <= set(running), "a sequence that does not run uses common pages"


def beginnings(ids: Sequence[int], page_tokens: int, secret: bytes, tenant: str = "") -> tuple[int, ...]:
    """Return a number for each full page of a prompt's tokens, of all tokens up to its end.

    The last token is in none of them, since it must be read to make the next one. Numbers of different tenants differ, so
    that nobody learns by the time to the first token which prompts others have sent; so do those of different secrets.
    """
    pages = (len(ids) - 1) // page_tokens
    digest = hashlib.blake2b(tenant.encode(), key=secret, digest_size=8)
    tokens = np.asarray(ids[: pages * page_tokens], np.int64).tobytes()
    size, numbers = 8 * page_tokens, []
    for page in range(pages):
        digest.update(tokens[page * size : (page + 1) * size])
        numbers.append(int.from_bytes(digest.digest(), "big") >> (64 - _BITS))
    return tuple(numbers)


def missing(prompt: Prompt, cached: int, page_tokens: int) -> tuple[int, ...]:
    """Return the numbers of the pages behind `cached` tokens, if those end with a page; else none."""
    return prompt.beginnings[cached // page_tokens :] if cached % page_tokens == 0 else ()
