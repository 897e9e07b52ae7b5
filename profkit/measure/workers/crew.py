"""Items and GPUs  ->  each item done by whichever GPU is free; a GPU that fails gives its item back.

A queue and no plan: items differ in length, and GPUs of one host in speed, so a split made before
leaves some of them idle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from profkit.errors import ProfkitError

ItemT = TypeVar("ItemT")
MemberT = TypeVar("MemberT")
_TICK = 0.2  # seconds in which Ctrl-C is heard


class GivenBack(ProfkitError):
    """A member could not do an item for a reason that may be its own: another one tries it."""


@dataclass
class _Handed(Generic[ItemT, MemberT]):
    """What is to be done, and who could not."""

    value: ItemT
    failed: list[MemberT] = field(default_factory=list)


@dataclass
class Crew(Generic[MemberT]):
    """Those who do items, each in a thread."""

    members: list[MemberT]  # one a GPU
    # those that failed, with why; they get nothing more
    lost: list[tuple[MemberT, ProfkitError]] = field(default_factory=list)

    def share(self, items: Sequence[ItemT], do: Callable[[MemberT, ItemT, bool], None]) -> None:
        """Do every item once; what raises otherwise than below ends the others' next items too.

        In their order: do(member, item, last); `last`: nobody is left who has not tried it.
        GivenBack leaves an item to another member; any other ProfkitError ends the member as well.

        Raises:
            ProfkitError: No member is left, as the last one said it.
        """
        if len(self.members) == 1:
            for item in items:
                do(self.members[0], item, True)
            return
        shift = _Shift(self, deque(_Handed[ItemT, MemberT](item) for item in items), do)
        shift.run()


class _Shift(Generic[ItemT, MemberT]):
    """One queue and its threads."""

    def __init__(
        self,
        crew: Crew[MemberT],
        queue: deque[_Handed[ItemT, MemberT]],
        do: Callable[[MemberT, ItemT, bool], None],
    ) -> None:
        self.crew, self.queue, self.do = crew, queue, do
        self.changed = threading.Condition()
        self.left = len(queue)
        self.broken: list[BaseException] = []

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._serve, args=(member,), daemon=True)
            for member in self.crew.members
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(_TICK)
        finally:
            with self.changed:
                self.left = 0  # after Ctrl-C: nothing more is begun
                self.changed.notify_all()
        if self.broken:
            raise self.broken[0]

    def _serve(self, member: MemberT) -> None:
        while (item := self._next(member)) is not None:
            try:
                self.do(member, item.value, self._is_last(member, item))
            except GivenBack:
                self._back(item, member)
            except ProfkitError as error:
                self._drop(member, item, error)
                return
            except BaseException as error:  # noqa: BLE001 - raised where the items were given
                self._stop(error)
                return
            else:
                with self.changed:
                    self.left -= 1
                    self.changed.notify_all()

    def _next(self, member: MemberT) -> _Handed[ItemT, MemberT] | None:
        """The next item that this member has not tried; None when all is done."""
        with self.changed:
            while self.left > 0:
                for item in self.queue:
                    if member not in item.failed:
                        self.queue.remove(item)
                        return item
                self.changed.wait(_TICK)  # somebody may yet give one back
        return None

    def _is_last(self, member: MemberT, item: _Handed[ItemT, MemberT]) -> bool:
        with self.changed:
            return all(m is member or m in item.failed for m in self.crew.members)

    def _back(self, item: _Handed[ItemT, MemberT], member: MemberT) -> None:
        with self.changed:
            item.failed.append(member)
            if all(m in item.failed for m in self.crew.members):
                item.failed.clear()  # the others were lost meanwhile
            self.queue.append(item)
            self.changed.notify_all()

    def _drop(self, member: MemberT, item: _Handed[ItemT, MemberT], error: ProfkitError) -> None:
        with self.changed:
            self.crew.members.remove(member)
            self.crew.lost.append((member, error))
            self.queue.appendleft(item)
            if not self.crew.members:
                self._end(error)
            self.changed.notify_all()

    def _stop(self, error: BaseException) -> None:
        with self.changed:
            self._end(error)
            self.changed.notify_all()

    def _end(self, error: BaseException) -> None:
        self.broken.append(error)
        self.left = 0
