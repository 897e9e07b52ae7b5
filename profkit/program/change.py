"""Two triages of one program  ->  what became of each promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from profkit.units import (
        FindingJson,
        KernelJson,
        Milliseconds,
        RuleName,
        Sentence,
        SentenceOrEmpty,
        Share,
        TriageJson,
    )


SAME = 0.02  # of the step: a difference that two runs of one program show
UNLIKE = 0.25  # of the GPU's time: where both sides have no more of it in common, it is said
FEW = 3  # steps: so few have no usual one
MORE_CALLS = 2.0  # times the launches of a step: no change of kernels alone makes so many of them
MOVES = {"copy", "set", "convert"}  # work that any program has
TWO_PROGRAMS = (
    "the two recordings are of different programs: they have hardly a kernel in common, nor operators "
    "or launches that would show one program with other kernels"
)


class Promise(TypedDict):
    """A finding of the first triage, and what the second one says of it."""

    category: str
    say: str
    said: tuple[float, float, float]  # milliseconds it was said to save: expect, low, high
    state: str  # gone, smaller, or there as before
    left: float  # milliseconds that the second triage still says


class StepTime(TypedDict):
    """A step in milliseconds without a recorder; its ends differ where that is an estimate."""

    expect: float
    low: float
    high: float
    recorded: float  # with the recorder: what was measured
    least: float  # of the steps that were recorded
    most: float
    steps: int


class TriagesDocument(TypedDict):
    """What `profkit compare A.triage B.triage --json` prints: what became of each promise."""

    schema: Literal["profkit.triages/1"]
    answer: str  # faster, slower, same or cannot tell
    before_ms: float  # the step without a recorder
    after_ms: float
    before: StepTime
    after: StepTime
    saved_ms: float  # negative if it is slower
    promises: list[Promise]
    # whether what was saved is in the interval that the gone ones promised; None if none is gone
    kept: bool | None
    outcome: str | None  # of the gone ones: inside of what they promised, more, or less
    new: list[str]  # categories that only the second has
    notes: list[str]  # what makes the two hard to compare


def compare_triages(before: TriageJson, after: TriageJson) -> TriagesDocument:
    """Compare two "profkit.triage/1" documents."""
    first = _read_step_time(before)
    second = _read_step_time(after)
    saved = first["expect"] - second["expect"]
    slack = SAME * first["expect"]
    answer = _choose_answer_from_saved_time(saved, slack)
    promises, new = _compare_findings(before["findings"], after["findings"])
    notes = _list_setup_differences(before["program"], after["program"])
    kernels_before = _select_kernel_rows(before["kernels"])
    kernels_after = _select_kernel_rows(after["kernels"])
    if _are_two_programs(kernels_before, kernels_after):
        answer = "cannot tell"
        notes.append(TWO_PROGRAMS)
        promises = []
        new = []
    else:
        notes += _note_different_kernels(kernels_before, kernels_after)
        unsure = _explain_no_answer(before, after, answer)
        if unsure:
            answer = "cannot tell"
            notes.append(unsure)
    outcome = None
    if answer != "cannot tell":
        outcome = _compare_saving_with_promises(promises, saved, slack)
    return {
        "schema": "profkit.triages/1",
        "answer": answer,
        "before_ms": first["expect"],
        "after_ms": second["expect"],
        "before": first,
        "after": second,
        "saved_ms": saved,
        "promises": promises,
        "kept": outcome == "inside" if outcome else None,
        "outcome": outcome,
        "new": new,
        "notes": notes,
    }


def _choose_answer_from_saved_time(saved_ms: Milliseconds, slack_ms: Milliseconds) -> str:
    """Return the answer that the two times alone give."""
    if abs(saved_ms) <= slack_ms:
        return "same"
    if saved_ms > 0:
        return "faster"
    return "slower"


def _compare_findings(
    before: Sequence[FindingJson], after: Sequence[FindingJson]
) -> tuple[list[Promise], list[RuleName]]:
    """Return what became of each finding, and the categories that only the second triage has."""
    left = {row["category"]: row["saves_ms"]["expect"] for row in after}
    promises = []
    for row in before:
        promises.append(_make_promise(row, left.get(row["category"], 0.0)))
    new = left.keys() - {row["category"] for row in before}
    return promises, sorted(new)


def _read_step_time(document: TriageJson) -> StepTime:
    recorded = float(document["step"]["ms"])
    plain = document["step"].get("plain_ms") or {}
    expect = _get_or_default(plain.get("expect"), recorded)
    low = _get_or_default(plain.get("low"), expect)
    high = _get_or_default(plain.get("high"), expect)
    return {
        "expect": expect,
        "low": low,
        "high": high,
        "recorded": recorded,
        "least": _get_or_default(document["step"].get("min_ms"), recorded),
        "most": _get_or_default(document["step"].get("max_ms"), recorded),
        "steps": int(document["program"].get("steps") or 1),
    }


def _get_or_default(value: float | None, default: float) -> float:
    """Return a number of a document, or another one where it has none; zero is a number."""
    if value is None:
        return default
    return float(value)


def _explain_no_answer(before: TriageJson, after: TriageJson, answer: str) -> SentenceOrEmpty:
    """Return why two times do not show what a change did; empty where they do."""
    one, other = (of["program"].get("device") for of in (before, after))
    if one and other and one != other:
        return "the two ran on different GPUs: the difference may be theirs, not the change's"
    if answer == "same":
        return ""
    if not _is_one_surely_longer(before, after):
        return (
            "the times without a recorder are estimates, and their intervals do not say which is "
            "less: time both without one, and triage each with --step-ms"
        )
    few = [of for of in (before, after) if 1 < of["program"]["steps"] < FEW]
    lowest = max(of["step"].get("min_ms", of["step"]["ms"]) for of in (before, after))
    highest = min(of["step"].get("max_ms", of["step"]["ms"]) for of in (before, after))
    if few and lowest <= highest:
        return (
            "one has two steps only, and they differ by more than the two recordings: record more"
        )
    return ""


def _is_one_surely_longer(before: TriageJson, after: TriageJson) -> bool:
    """Return whether the same recording is the longer one wherever in their intervals both are.

    One recorder slows both hosts alike: their ends are compared in pairs. Two recorders do not.
    """
    first = _read_step_time(before)
    second = _read_step_time(after)
    if before["program"]["how"] != after["program"]["how"]:
        return first["low"] > second["high"] or first["high"] < second["low"]
    pairs = [(first[end], second[end]) for end in ("low", "expect", "high")]
    return all(one > other for one, other in pairs) or all(one < other for one, other in pairs)


def _compare_saving_with_promises(
    promises: Sequence[Promise], saved_ms: Milliseconds, slack_ms: Milliseconds
) -> str | None:
    """Return how what was saved is to what the gone findings promised: inside, more or less.

    Fixes that share an obstacle do not add up: the largest alone up to all of them together. None
    where no finding is gone.
    """
    gone = [promise["said"] for promise in promises if promise["state"] == "gone"]
    if not gone:
        return None
    low = max(promised_low for _, promised_low, _ in gone)
    high = sum(promised_high for _, _, promised_high in gone)
    if saved_ms < low - slack_ms:
        return "less"
    if saved_ms > high + slack_ms:
        return "more"
    return "inside"


def _make_promise(row: FindingJson, ms_left: float) -> Promise:
    saves = row["saves_ms"]
    expect = saves["expect"]
    state = "there"
    if ms_left < 0.25 * expect:
        state = "gone"
    elif ms_left < 0.75 * expect:
        state = "smaller"
    return {
        "category": row["category"],
        "say": row["say"],
        "said": (expect, saves["low"], saves["high"]),
        "state": state,
        "left": ms_left,
    }


def _list_setup_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Sentence]:
    """Return what was recorded differently."""
    differences = []
    for key in ("device", "how", "ranks"):
        if before.get(key) != after.get(key):
            differences.append(f"{key}: {before.get(key)} before, {after.get(key)} after")
    return differences


def _select_kernel_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of kernels, without copies and the like, which say nothing of a program."""
    return [row for row in rows if row.get("category") not in MOVES]


def _compute_common_shares(
    before: Sequence[KernelJson], after: Sequence[KernelJson], key: str
) -> tuple[int, int, list[Share]]:
    """Return how many names are in both and in any of two lists, and their share of each one's time."""
    names_before = _list_values_of_key(before, key)
    names_after = _list_values_of_key(after, key)
    both = names_before & names_after
    shares = []
    for side in (before, after):
        common = sum(row["ms"] for row in side if row.get(key) in both)
        shares.append(common / max(1e-9, sum(row["ms"] for row in side)))
    return len(both), len(names_before | names_after), shares


def _list_values_of_key(rows: Sequence[Mapping[str, Any]], key: str) -> set[str]:
    """Return the different values that rows have of a key."""
    return {row[key] for row in rows if row.get(key)}


def _are_two_programs(before: Sequence[KernelJson], after: Sequence[KernelJson]) -> bool:
    """Return whether nothing that two recordings hold is of one program.

    Hardly a kernel is common, and hardly an operator where operators were recorded. Where none were, a
    change may have replaced each kernel, but not made so many more launches of them.
    """
    if not before or not after:
        return False
    if max(_compute_common_shares(before, after, "name")[2]) > UNLIKE:
        return False
    if _list_values_of_key(before, "op") and _list_values_of_key(after, "op"):
        return max(_compute_common_shares(before, after, "op")[2]) <= UNLIKE
    launches_before = sum(row["calls"] for row in before)
    launches_after = sum(row["calls"] for row in after)
    fewer, more = sorted((launches_before, launches_after))
    return bool(more > MORE_CALLS * fewer)


def _note_different_kernels(
    before: Sequence[KernelJson], after: Sequence[KernelJson]
) -> list[Sentence]:
    """Return a note where the two hardly launch the same kernels.

    A fix may replace all of them (another precision does), so that proves no other program.
    """
    both, any_of, shares = _compute_common_shares(before, after, "name")
    if not before or not after or max(shares) > UNLIKE:
        return []
    one, other = (f"{100 * share:.0f} %" for share in shares)
    return [
        f"only {both} of {any_of} kernels occur on both sides ({one} of GPU time before, {other} "
        f"after). Unless your change replaced the other {any_of - both}, they are not of one program"
    ]
