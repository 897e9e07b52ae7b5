"""A word of a screen that names no rule, metric or verdict  ->  what it means, and what is near it."""

from __future__ import annotations

from typing import NamedTuple

from profkit.model.scenario import SPREAD, make_bounded_expectation
from profkit.show.text.words import format_expectation


class ScreenWord(NamedTuple):
    """What a word means, where it is shown, and the names whose pages say more."""

    meaning: str
    where: str
    see: tuple[str, ...] = ()


_DIAGNOSE = "diagnose and report"
_TWICE = make_bounded_expectation(2.0, SPREAD)
_TRIAGE = "the bar of triage: the part of the step in which the GPU computes nothing"
_COMPARE = "compare: what became of a finding"
_LEADING = "compare: what became of the finding that led before"

SCREEN_WORDS = {
    "expected": ScreenWord(
        "the speed-up that a fix of this cause is expected to give, with the interval that is meant to "
        "hold four times out of five; it is never above the ceiling, and equal to it where a typical "
        "fix gets there",
        f"{_DIAGNOSE}: expect {format_expectation(_TWICE)}",
    ),
    "at most": ScreenWord(
        "the speed-up if this cause vanished, with the other waits that can end with it, and nothing "
        "took its place: an estimated ceiling, not a promise",
        f"{_DIAGNOSE}: at most 3.38x",
    ),
    "headroom": ScreenWord(
        "how much faster the launch could be if the resource that limits it were used up to what it can "
        "reach",
        "triage's table of kernels, pk.diagnose and --json",
    ),
    "clocks": ScreenWord(
        "the launch ran below the GPU's highest clock: ncu locks the clock to the base clock by default",
        f"{_DIAGNOSE}, below the findings",
        ("clocks-unsteady",),
    ),
    "counters": ScreenWord(
        "counters cover only a part of the launch",
        f"{_DIAGNOSE}, below the findings",
        ("clocks-unsteady",),
    ),
    "near the hardware limit": ScreenWord(
        "the same work cannot go more than about a tenth faster on this GPU: only less work would",
        f"{_DIAGNOSE}, in place of a gain",
        ("dram-bandwidth", "tensor-pipe"),
    ),
    "clear": ScreenWord(
        "the rule was checked, and does not hold", "pk.diagnose, --json and compare's tables"
    ),
    "not checked": ScreenWord(
        "the counters that a rule needs are not in the report: that is not the same as clear",
        f"{_DIAGNOSE}; --all says which section of ncu collects them",
    ),
    "sol": ScreenWord(
        "Speed of Light, the section of ncu that gives the busiest unit's share of its peak; profkit "
        "names the unit",
        "ncu's pages",
        ("sm_busy", "memory_busy", "dram_busy", "l2_busy", "l1_busy"),
    ),
    "computing": ScreenWord("kernels run on the GPU", "the bar of triage, marked #", ("healthy",)),
    "waiting for launches": ScreenWord(
        "the GPU has nothing queued, because the host has not launched the next kernel yet",
        _TRIAGE,
        ("host-launch",),
    ),
    "host synchronization": ScreenWord(
        "the host waited for the GPU, and the GPU is idle until the host launches again",
        _TRIAGE,
        ("host-sync",),
    ),
    "copies": ScreenWord(
        "data moves between the host and the GPU, and no kernel runs", _TRIAGE, ("copy",)
    ),
    "collectives": ScreenWord("ranks exchange data, and no kernel runs", _TRIAGE, ("collective",)),
    "not explained": ScreenWord(
        "idle time for which the recording shows no cause: no launch, wait or copy is next to it",
        _TRIAGE,
    ),
    "gone": ScreenWord("it was found before, and too little of its cause is left", _COMPARE),
    "new": ScreenWord("it is found now, and there was too little of its cause before", _COMPARE),
    "smaller": ScreenWord("there is less of its cause than before (better in --json)", _COMPARE),
    "larger": ScreenWord("there is more of its cause than before (worse in --json)", _COMPARE),
    "fewer cycles": ScreenWord(
        "there is less of its cause, but as the launch became shorter it is a larger share of it",
        _COMPARE,
    ),
    "more cycles": ScreenWord(
        "there is more of its cause, but as the launch became longer it is a smaller share of it",
        _COMPARE,
    ),
    "unchanged": ScreenWord("there is as much of its cause as before", _COMPARE),
    "no longer reported": ScreenWord(
        "less of its cause is left, and too little to report, but it is not gone", _COMPARE
    ),
    "reported now": ScreenWord(
        "there is as much of its cause as before, and now nothing else explains it", _COMPARE
    ),
    "better": ScreenWord(
        "there is less of a finding's cause than before: of a launch's shape, say, which fills more",
        _COMPARE,
    ),
    "worse": ScreenWord("there is more of a finding's cause than before", _COMPARE),
    "explained": ScreenWord("its cause is there, and another finding explains it now", _COMPARE),
    "hidden": ScreenWord(
        "its cause is still there, but another finding explains it now, or it is too small to report",
        _COMPARE,
    ),
    "uncovered": ScreenWord(
        "its cause was there before, but another finding explained it then, or it was too small to "
        "report",
        _COMPARE,
    ),
    "changed": ScreenWord("it is found in both, with another amount or gain", _COMPARE),
    "fixed": ScreenWord("too little of its cause is left", _LEADING),
    "not fixed": ScreenWord("its cause is there, though another finding explains it now", _LEADING),
    "still there": ScreenWord(
        "its cause is there, perhaps less of it, or another finding explains it now", _COMPARE
    ),
    "cannot tell": ScreenWord(
        "the difference is within the noise, or nothing was timed: a duration under ncu is not a timing",
        "compare, gate and history",
    ),
    "kept": ScreenWord("what was predicted came true", "compare: predictions"),
    "broken": ScreenWord("what was predicted did not come true", "compare: predictions"),
}
# What stands on screens in another form, too.
SAME_WORD = {
    "expect": "expected",
    "gain": "at most",
    "speed of light": "sol",
    "idle": "not explained",
    "explained": "not explained",
    "unknown rule": "not checked",
    "at the hardware limit": "near the hardware limit",
}


def normalize_screen_word(name: str) -> str | None:
    """Return the word of a screen that a name is, in any case; None for any other name."""
    word = " ".join(name.lower().replace("-", " ").split())
    word = SAME_WORD.get(word, word)
    if word in SCREEN_WORDS:
        return word
    return None
