"""Items and GPUs  ->  each item done by whichever GPU is free; a GPU that fails gives its item back.

A queue and no plan: items differ in length, and GPUs of one host in speed, so a split made before
leaves some of them idle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from profkit.errors import ProfkitError

ItemT = TypeVar("ItemT")
MemberT = TypeVar("MemberT")


class GivenBack(ProfkitError):
    """A member could not do an item for a reason that may be its own: another one tries it."""


@dataclass
class Crew(Generic[MemberT]):
    """Those who do items, one a GPU."""

    members: list[MemberT]
    # those that failed, with why; they get nothing more
    lost: list[tuple[MemberT, ProfkitError]] = field(default_factory=list)

    def share(self, items: Sequence[ItemT], do: Callable[[MemberT, ItemT, bool], None]) -> None:
        """Do every item once, each in a thread of its own; what is decided is decided in this one.

        In their order: do(member, item, last); `last`: nobody is left who has not tried it.
        GivenBack leaves an item to another member; any other ProfkitError ends the member as well,
        anything else ends all when what runs has ended.

        Raises:
            ProfkitError: No member is left, as the last one said it.
        """
        if len(self.members) == 1:
            for item in items:
                do(self.members[0], item, True)
            return
        ended: SimpleQueue[tuple[MemberT, ItemT, list[MemberT], BaseException | None]]
        ended, free = SimpleQueue(), list(self.members)
        waiting = deque[tuple[ItemT, list[MemberT]]]((item, []) for item in items)
        broken: BaseException | None = None

        def run(member: MemberT, item: ItemT, tried: list[MemberT]) -> None:
            error: BaseException | None = None
            try:
                do(member, item, all(m is member or m in tried for m in self.members))
            except BaseException as caught:  # noqa: BLE001 - raised where the items were given
                error = caught
            ended.put((member, item, tried, error))

        while len(free) < len(self.members) or (waiting and not broken):
            for member, item, tried in () if broken else self._pairs(free, waiting):
                # Daemons: after Ctrl-C nobody waits for them.
                threading.Thread(target=run, args=(member, item, tried), daemon=True).start()
            member, item, tried, error = ended.get()
            if isinstance(error, GivenBack):
                waiting.append((item, [*tried, member]))
            elif isinstance(error, ProfkitError):
                self.members.remove(member)
                self.lost.append((member, error))
                waiting.appendleft((item, tried))
                broken = broken or (None if self.members else error)
            elif error:
                broken = broken or error
            if member in self.members:
                free.append(member)
        if broken:
            raise broken

    def _pairs(
        self, free: list[MemberT], waiting: deque[tuple[ItemT, list[MemberT]]]
    ) -> list[tuple[MemberT, ItemT, list[MemberT]]]:
        """Take from both who is to do what next."""
        pairs = []
        for member in tuple(free):
            for handed in tuple(waiting):
                item, tried = handed
                if all(m in tried for m in self.members):
                    tried.clear()  # the others were lost meanwhile
                if member not in tried:
                    free.remove(member)
                    waiting.remove(handed)
                    pairs.append((member, item, tried))
                    break
        return pairs
