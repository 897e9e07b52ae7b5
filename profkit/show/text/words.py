"""The verdict (in ncu's words), a finding, a metric, a source line  ->  plain words and figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from math import isfinite
from os.path import basename
from typing import TYPE_CHECKING

from profkit.diagnosis.launches import (
    LINES,
    HotLine,
    JudgedLaunch,
    LaunchRow,
    find_leading_row_with_sure_saving,
)
from profkit.diagnosis.rule import CombinedGain, Diagnosis, LaunchFinding, SourceShare
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.rules.waits import WAITING, WAITS_OF_WARPS
from profkit.diagnosis.verdict import NOTHING_TO_WIN
from profkit.model.resources import BY_LIMITER
from profkit.model.scenario import Expectation
from profkit.records.paths import FULL
from profkit.reports.figures import (
    OUT_OF_RANGE,
    format_count_with_noun,
    format_seconds,
    format_share,
    format_speedup,
    format_three_figures,
    format_value_with_unit,
    format_values_with_unit,
)
from profkit.reports.metrics import CATALOGUE, warps
from profkit.show.text.blocks import Role, TextSpan, Words
from profkit.show.text.escape import escape_text, shorten_name

if TYPE_CHECKING:
    from profkit.evidence.samples import Interval
    from profkit.evidence.stats import TimeComparison
    from profkit.units import (
        CharacterCount,
        Clause,
        ClauseOrEmpty,
        CommandText,
        Dim3,
        Factor,
        FactorOrOne,
        MetricName,
        Sentence,
        SentenceOrEmpty,
        TextOrEmpty,
    )

NAME = 48  # characters of a kernel name in a sentence
ORDER = "sorted by expected saving"
ABLATED = ("measured", "bound")  # groups of causes.toml that an ablation takes away
WHOLE = 0.995  # of a line from which on its call has all of it
CLEARLY_MORE = 1.1  # a gain a tenth larger than what leads
FURTHER_GAINS = 2  # named in the answer, besides the gain of what leads
GPUS = 3  # that are named with their time
REPORTS = 8  # that a command names one by one
BRIEF = 2000  # characters of a brief: 500 tokens of English with numbers
_FACT = 460  # characters of one of its lines
JUMPS = frozenset(("BRA", "BRX", "JMP", "JMX", "CALL", "RET"))  # give no result that is waited for

WAITS = {state: what for state, what in warps.WAITS.items() if state in WAITING}
# What is full, by the unit's limiter.
UNITS = {
    "atomics": "atomics on few addresses",
    "constant": "the constant cache",
    "dram": "DRAM bandwidth",
    "fp16": "the FP16 pipe",
    "fp32": "the FP32 pipe",
    "fp64": "the FP64 pipe",
    "int": "the integer pipe",
    "issue": "the issue slots",
    "l1": "L1TEX's busiest stage",
    "l2": "L2 bandwidth",
    "shared": "shared memory",
    "tensor": "the tensor cores",
    "texture": "the texture unit",
    "xu": "the special functions",
}
# What is wrong with a launch's shape.
SHAPES = {
    "grid_too_small": "a grid with too few blocks for the GPU",
    "imbalance": "unequal work across SMs",
    "tail": "a last wave of blocks that fills only some SMs",
    "too_short": "launch overhead",
}
# What each limiter says of a launch.
LIMITERS = {
    **{unit: f"the resource that is full is {text}" for unit, text in UNITS.items()},
    **{state: f"the warps wait for {text}" for state, text in WAITS.items()},
    **{shape: f"the launch is limited by {text}" for shape, text in SHAPES.items()},
}
# Limiter -> the rule that names it, as findings are called.
RULES_OF_LIMITERS = {
    **{name: unit.rule for name, unit in BY_LIMITER.items() if unit.rule},
    **{wait.state: wait.rule for wait in WAITS_OF_WARPS if not wait.of_wgmma},
    **{rule.shape: rule.id for rule in ALL if rule.shape},
}
# What was counted at a source line (profkit.reports.instruction): of some the cause has said how much
# there is ("69 % of it at"), the others are named ("and 69 % of the instructions come from").
OF_CAUSE = {
    "divergent-branches": "them",
    "excess-sectors": "them",
    "excess-wavefronts": "them",
    "lost-lanes": "them",
    "stall": "it",
    "stalls": "it",
}
STALLS = ("stall", "stalls")
NAMED = {
    "instructions": "the instructions come",
    "l1-requests": "the requests come",
    "local-sectors": "the local traffic comes",
    "sectors": "the traffic comes",
    "wavefronts": "the wavefronts come",
}
BOUNDS = {
    "memory": "a unit of the memory system is near the most it can reach",
    "compute": "a pipe or the issue slots are near the most they can reach",
    "latency": "nothing is near its peak: warps wait, and too few others are ready in the meantime",
    "launch": "the shape of the launch leaves the GPU idle",
    "balanced": "a memory unit and a compute unit are both near the most they can reach",
    "unknown": "the deciding counters were not collected",
}


def say_verdict(diagnosis: Diagnosis) -> Clause:
    """Return the verdict as the rest of a sentence that begins with the kernel's name.

    The limiter's own name follows, unless the finding that leads is called so, too.
    """
    limiter = diagnosis.limiter
    named = ""
    if limiter:
        named = f" ({name_limit(diagnosis.label)})"
    if limiter and diagnosis.top and diagnosis.top.rule == limiter.replace("_", "-"):
        named = ""
    if limiter is None:
        if diagnosis.bound == "latency":
            return "is limited by latency"
        return "waits, and what it waits for was not collected"
    if diagnosis.bound == "latency":
        return f"waits for {WAITS.get(limiter, limiter)}{named}"
    if diagnosis.bound == "launch":
        return f"is limited by {SHAPES.get(limiter, limiter)}"
    parts = limiter.split("+")
    units = " and ".join(UNITS.get(part, part) for part in parts)
    is_said = all(part in UNITS.get(part, part).lower() for part in parts)
    if is_said:
        named = ""
    return f"is limited by {units}{named}"


def label_verdict(run: JudgedLaunch) -> str:
    """Return the verdict in two words: "memory: shared", "unknown"; or that a launch failed."""
    if run.status == "ok":
        return spell_limiter(run.diagnosis.label)
    return run.status


def name_limit(label: str) -> str:
    """Return what limits a launch by the rule that says so: "latency: wait" is fixed-latency."""
    bound, colon, limiters = label.partition(": ")
    if not colon:
        return bound
    return " + ".join(RULES_OF_LIMITERS.get(name, name) for name in limiters.split("+"))


def spell_limiter(name: str) -> str:
    """Return a limiter's name as it is read: "short scoreboard". A rule's has hyphens."""
    return name.replace("_", " ")


def name_launch_by_variant(run: JudgedLaunch) -> str:
    return " ".join(filter(None, (run.variant, run.case)))


def name_launch_by_report(run: JudgedLaunch) -> str:
    """Return a launch by the file that it is in: "my.ncu-rep #0"."""
    return f"{basename(run.report)} #{run.index}"


def name_device(run: JudgedLaunch) -> str:
    return run.device or "device unknown"


def format_dims(dims: Dim3 | None) -> str:
    """Return a grid or block without trailing ones: 16 x 4 x 16."""
    if dims is None:
        return "unknown"
    sizes = list(dims)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " x ".join(f"{n:,}" for n in sizes)


# What CUDA counts in 1,024 bytes: 48 KiB and 228 KiB of shared memory.
_IN_KIB = frozenset(
    {
        "shared_static",
        "shared_dynamic",
        "shared_driver",
        "shared_block",
        "shared_config",
        "shared_step",
    }
)


def format_metric(name: MetricName, value: float | None) -> str:
    """Return a metric's value with the unit that the catalogue gives it.

    A share a little above 1, of one thing over another counted in two passes, is all of it.
    """
    if name in CATALOGUE:
        unit = CATALOGUE[name].unit
    else:
        unit = "count"
    whole = unit == "share" and value is not None and 1 < value <= OUT_OF_RANGE
    if name in _IN_KIB and value is not None and isfinite(value):
        return f"{format_three_figures(value / 1024)} KiB"
    return format_value_with_unit(1.0 if whole else value, unit)


def format_metric_pair(name: MetricName, before: float | None, after: float | None) -> list[str]:
    """Return a metric's values before and after a change, in one form."""
    if name in CATALOGUE and CATALOGUE[name].unit == "count":
        return format_values_with_unit((before, after), "count")
    return [format_metric(name, before), format_metric(name, after)]


def format_metric_values(values: Mapping[MetricName, float | None]) -> str:
    return ", ".join(f"{name} {format_metric(name, value)}" for name, value in values.items())


def format_gain_as_bound(factor: Factor | None) -> str:
    """Return a finding's gain, which is a bound and no promise: "at most 1.85x"."""
    known = factor is not None and isfinite(factor)
    if known:
        return f"at most {format_speedup(factor)}"
    return "gain unknown"


def format_expectation(expectation: Expectation) -> str:
    """Return what to expect of a fix, with the 80 % interval: 1.85x (1.4 to 2.2)."""
    low = format_three_figures(expectation.low)
    high = format_three_figures(expectation.high)
    return f"{format_speedup(expectation.gain)} ({low} to {high})"


def describe_finding_gain(finding: LaunchFinding) -> Clause:
    """Return what a fix is worth: "expect 1.85x (1.4 to 2.2), at most 3.1x", "near the hardware limit".

    What was measured by taking the cause away comes first: "measured 1.53x; expect 1.85x ...".
    """
    measured = finding.measured
    if measured is None:
        return say_expectation(finding)
    if measured.reachable:
        kind = "measured"
    else:
        kind = "measured at most"
    without = f"{kind} {format_speedup(measured.gain)} without {measured.title}"
    return f"{without}; {say_expectation(finding).removesuffix(ABLATE)}"


def say_expectation(finding: LaunchFinding) -> Clause:
    """Return the expected speed-up with its interval, and the bound."""
    if finding.at_roof:
        return "near the hardware limit"
    if finding.expect is None:
        return format_gain_as_bound(finding.gain)
    bound = "no bound known"
    if finding.gain is not None:
        bound = format_gain_as_bound(finding.gain)
    if finding.expect.is_wide:
        return f"expect {format_gain_range(finding.expect)}, {bound}{_say_ablation(finding)}"
    return f"expect {say_expected_factor(finding.expect)}, {bound}"


def say_expected_factor(expectation: Expectation) -> str:
    """Return "1.85x (1.4 to 2.2)", and no figure where clocks and inputs change as much."""
    if expectation.gain < NOTHING_TO_WIN:
        return f"less than {format_speedup(NOTHING_TO_WIN)}"
    return format_expectation(expectation)


# Behind an interval that is too wide for a number.
ABLATE = "; `profkit ablate` can measure it"


def _say_ablation(finding: LaunchFinding) -> ClauseOrEmpty:
    """Return that an ablation measures the cause of a finding; "" where none does."""
    from profkit.records.ablation import read_ablations_by_rule

    for group, causes in read_ablations_by_rule().items():
        if group in ABLATED and finding.rule in causes:
            return ABLATE
    return ""


def format_gain_range(expectation: Expectation) -> str:
    """Return "2.35x to 7.24x": an interval too wide to name a number in it."""
    return f"{format_speedup(expectation.low)} to {format_speedup(expectation.high)}"


def describe_combined_gain(both: CombinedGain) -> str:
    """Return what two findings are worth at once: "a and b together: expect 9x (4 to 15)"."""
    bound = ""
    if both.gain is not None:
        bound = f", {format_gain_as_bound(both.gain)}"
    hope = both.expect
    if hope.is_wide:
        what = f"expect {format_gain_range(hope)}"
    else:
        what = f"expect {format_expectation(hope)}"
    more = ""
    if both.is_more_than_product:
        more = "; alone, each leaves what the other removes"
    return f"{' and '.join(both.rules)} together: {what}{bound}{more}"


def format_expected_gain(finding: LaunchFinding | None) -> TextOrEmpty:
    """Return the same in a table: "1.85x (1.4 to 2.2)", "2.6x to 8.9x"; "" for no finding."""
    if finding is None:
        return ""
    if finding.measured_reachable_gain is not None:
        return f"{format_speedup(finding.measured_reachable_gain)} measured"
    hope = finding.expect
    if hope is None:
        return describe_finding_gain(finding)
    if hope.is_wide:
        return format_gain_range(hope)
    if hope.gain < NOTHING_TO_WIN:
        return f"< {format_speedup(NOTHING_TO_WIN)}"
    return format_expectation(hope)


def describe_gain_and_cause(finding: LaunchFinding) -> Clause:
    """Return a finding behind the name of its rule: what fixing it is worth, and the cause."""
    if finding.note:
        expected = ""
    else:
        expected = f", {describe_finding_gain(finding)}"
    return f"{expected}: {finding.cause}"


def format_half_width(time: Interval) -> TextOrEmpty:
    """Return how well a median is known: "± 0.25 %"; "" where its interval is not.

    Below 0.1 % no figure: nobody measures the same median again as well as that.
    """
    half = (time.high - time.low) / 2 / time.median
    if not isfinite(half):
        return ""
    if half < 0.001:
        return "± < 0.1 %"
    return f"± {100 * half:.2g} %"


def format_median(time: Interval | None) -> TextOrEmpty:
    """Return a median with its interval: "106 µs ± 0.25 %"; "" without one."""
    if time:
        return f"{format_seconds(time.median)} {format_half_width(time)}".rstrip()
    return ""


def format_measured_speedup(time: TimeComparison | None) -> TextOrEmpty:
    """Return a speed-up: 1.84x, with ~ before it where nothing can be told."""
    if time is None:
        return ""
    return f"{'~' if time.answer == 'cannot tell' else ''}{time.speedup.median:.2f}x"


def format_p_value(p_value: float | None) -> TextOrEmpty:
    """Return how likely chance alone would give such a difference: "p < 0.001"; "" if not known."""
    if p_value is None or not isfinite(p_value):
        return ""
    if p_value < 1e-3:
        return "p < 0.001"
    return f"p = {p_value:.2g}"


def format_line_and_share(line: SourceShare) -> str:
    """Return a line and its part: "stage.cu:41 (63 %, waits for LDG at stage.cu:38)"."""
    said = [format_share(line.share), describe_call_site(line)]
    source = line.waits_for
    if source is not None:
        awaited = f"waits for {source.opcode}"
        if source.opcode in JUMPS:
            awaited = f"after the jump {source.opcode}"
        if (source.file, source.line) != (line.file, line.line):
            awaited += f" at {basename(source.file)}:{source.line}"
        said.append(awaited)
    return f"{basename(line.file)}:{line.line} ({', '.join(filter(None, said))})"


def describe_call_site(line: SourceShare | HotLine) -> ClauseOrEmpty:
    """Return from where an inlined line is called; "" where the line alone says it."""
    call = line.called_at
    if call is None:
        return ""
    place = f"{basename(call.file)}:{call.line}"
    if call.share >= WHOLE:
        return f"called from {place}"
    return f"mostly called from {place}"


def format_finding_lines(finding: LaunchFinding) -> str:
    """Return the first few lines where a finding happens, in one line."""
    return ", ".join(map(format_line_and_share, finding.where[:LINES]))


def fit_lines_in_brief(lines: Sequence[str]) -> str:
    """Return the lines that fit a brief, the long ones shortened; what is left out is counted."""
    kept: list[str] = []
    room = BRIEF - 30
    for line in lines:
        if len(line) <= _FACT:
            text = line
        else:
            text = truncate_at_word(line, _FACT)
        room -= len(text) + 1
        if room < 0:
            break
        kept.append(text)
    more = []
    if len(kept) < len(lines):
        more = [f"({len(lines) - len(kept)} more lines)"]
    return "\n".join([*kept, *more])


def truncate_at_word(line: str, most_characters: CharacterCount) -> str:
    """Return the start of a line, no word of it cut: a file and its line stay whole."""
    end = line.rfind(" ", 0, most_characters - 1)
    if end <= 0:
        end = most_characters - 1
    return f"{line[:end]} …"


def highlight_answer(row: LaunchRow, answer_text: str) -> Words:
    """Return the answer with what the eye looks for set off: kernel, limit and expected gain."""
    run = row.median_launch
    top = row.median_launch.top
    marks: list[tuple[str, Role]] = [(shorten_name(run.kernel, NAME), "strong")]
    if run.status == "ok" and run.diagnosis.limiter:
        cause = shorten_cause(top.cause) if top else ""
        marks.append((_describe_verdict_beside_cause(cause, run.diagnosis), "strong"))
    if fix := find_fix_to_name_first(run):
        marks.append((describe_finding_gain(fix).removesuffix(ABLATE), "gain"))
    spans: list[TextSpan | str] = []
    for said, role in marks:
        if not said or said not in answer_text:
            continue
        before, _, answer_text = answer_text.partition(said)
        spans += [before, TextSpan(said, role)]
    return (*spans, answer_text)


# The answer: a sentence that says what limits it, and one that says what to do and what that gains.


# ncu saves and restores the kernel's memory for each pass: fewer passes ask less of the machine.
FEWER_PASSES = (
    "profile this kernel alone with fewer passes (ncu --set basic -k regex:NAME -c 1), or with "
    "--replay-mode application"
)


def suggest_retry_command(run: JudgedLaunch) -> CommandText:
    """Return the command that profiles a launch which failed, by itself and with few counters."""
    name = re.search(r"\w+", shorten_name(run.kernel, NAME).split("::")[-1])
    chosen = ""
    if name:
        chosen = f" -k regex:{name.group()}"
    return f"ncu --set basic{chosen} -c 1 -o basic COMMAND"


def write_headline(rows: Sequence[LaunchRow]) -> list[str]:
    """Return what limits the first row and where, then what to do, for which gain and saving."""
    if not rows:
        return []
    row = rows[0]
    run = row.median_launch
    top = row.median_launch.top
    name = shorten_name(run.kernel, NAME)
    if run.status != "ok":
        return [f"{name} was not measured: {run.diagnosis.because}.", f"Next: {FEWER_PASSES}"]
    where = _say_hottest_line(top)
    if run.lead_is_left_out:
        return _say_without_lead(run, where)
    is_known = top is not None and not _is_guess(run, top)
    cause = run.diagnosis.because
    if top and is_known:
        cause = shorten_cause(top.cause)
    what = f"{name} {_join_verdict_and_cause(run.diagnosis, cause)}{where}"
    if unknown := describe_unprofiled_kernels(rows):
        what = f"{unknown} {what}"
    if top and is_known:
        return [f"{what}.", *_say_fixes(row, rows, top)]
    if has_no_metrics(run):
        return [f"{what}.", f"Next: profile again with more counters: {FULL}"]
    return [
        f"{what}.",
        "No rule finds a cause to fix: less work is what would make it faster.",
    ]


def _say_fixes(row: LaunchRow, rows: Sequence[LaunchRow], leading: LaunchFinding) -> list[str]:
    """Return what to do about what leads, or about what should gain clearly more, which is named first.

    "Most is gained by another fix, grid-too-small: 128 blocks, but 792 would fit at once. Split the
    work: expect 2.25x. Next: fixed-latency 1.52x."
    """
    larger = find_larger_gains(row.median_launch)
    if not larger:
        unsure = _say_larger_but_unsure(row, rows)
        return list(filter(None, (say_what_to_do(row, rows, leading), unsure)))
    fix = larger[0]
    why = f"{shorten_cause(fix.cause)}{_say_hottest_line(fix)}"
    gains = []
    for finding in (*larger[1:FURTHER_GAINS], leading):
        gains.append(f"{finding.rule} {format_expected_gain(finding)}")
    return [
        f"Most is gained by another fix, {fix.rule}: {why}.",
        say_what_to_do(row, rows, fix),
        f"Next: {', '.join(gains)}.",
    ]


def find_fix_to_name_first(run: JudgedLaunch) -> LaunchFinding | None:
    """Return the finding whose fix should gain most: what leads, or what gains clearly more."""
    for finding in find_larger_gains(run):
        return finding
    return run.top


def put_larger_gains_first(
    run: JudgedLaunch, findings: Sequence[LaunchFinding]
) -> list[LaunchFinding]:
    """Return findings in the order of the answer: what gains more than what leads goes before it."""
    larger = find_larger_gains(run)
    others = [finding for finding in findings if finding not in larger]
    return [*larger, *others]


def say_what_to_do(row: LaunchRow, rows: Sequence[LaunchRow], leading: LaunchFinding) -> Sentence:
    """Return what to do, for which gain, and how much of the time that saves.

    "Pad the rows by 16 bytes: expect 1.85x (1.4 to 2.2), at most 3.1x, saving about 25 of 55 µs."
    """
    if leading.at_roof:
        return _say_how_to_do_less_work(row, rows, leading)
    advice = shorten_advice(leading.advice)
    gain = describe_finding_gain(leading)
    time = _say_time(row, rows)
    if len(rows) == 1 and len(row.launches) == 1 and format_seconds(row.total) in leading.cause:
        time = ""
    if gain == format_gain_as_bound(None):
        return f"{advice}; the gain is not known. {time}".strip()
    rule = BY_ID.get(leading.rule)
    if rule is not None and rule.otherwise:
        return f"{advice}; fixing what that shows gains {gain}. {time}".strip()
    after = ""
    if gain.endswith(ABLATE):
        gain = gain.removesuffix(ABLATE)
        after = ABLATE
    if saved := _say_saving(row, rows, leading):
        return f"{advice}: {gain}, {saved}{after}."
    return f"{advice}: {gain}{after}. {time}".strip()


def _say_how_to_do_less_work(
    row: LaunchRow, rows: Sequence[LaunchRow], leading: LaunchFinding
) -> Sentence:
    """Return what is left where a unit is at its peak: less work, and fixes that do not ask for it."""
    advice = shorten_advice(leading.advice)
    advice = advice[:1].lower() + advice[1:]
    besides = _say_fixes_besides_less_work(row.median_launch.diagnosis, leading)
    takes = _say_time(row, rows).removesuffix(".") or "It is"
    limit = f"{takes}, near the hardware limit".replace("It is, near", "It is near")
    return f"{limit}; {besides}only less work would make it faster: {advice}."


def _say_fixes_besides_less_work(diagnosis: Diagnosis, leading: LaunchFinding) -> str:
    """Return what else makes a launch at a roof faster: "besides short-kernel (at most 1.13x), "."""
    others = []
    for finding in diagnosis.findings:
        if finding.is_cause and finding is not leading and not finding.at_roof:
            others.append(f"{finding.rule} ({describe_finding_gain(finding)})")
    if not others:
        return ""
    return f"besides {' and '.join(others)}, "


def shorten_advice(advice: str) -> Clause:
    """Return what advice begins with, up to how that is done, as the begin of a sentence."""
    said = _cut_at_mark(get_first_clause_of_advice(advice), (": ",))
    return said[:1].upper() + said[1:]


def shorten_cause(cause: str) -> Clause:
    """Return a cause up to the end of the clause with its first number; the details have the rest."""
    number = re.search(r"\d", cause)
    if number is None:
        return cause
    return _cut_at_mark(cause, (": ", "; "), number.start())


def _cut_at_mark(text: str, marks: tuple[str, ...], begin: int = 0) -> str:
    """Return a text up to the first of some marks from a place on that is in no brackets."""
    open_brackets = 0
    for place, letter in enumerate(text):
        if letter == "(":
            open_brackets += 1
        elif letter == ")":
            open_brackets -= 1
        elif place >= begin and not open_brackets and text.startswith(marks, place):
            return text[:place]
    return text


def _say_hottest_line(finding: LaunchFinding | None) -> ClauseOrEmpty:
    """Return how much of a finding is at the line that has most of it; "" where no line is known."""
    if finding is None or not finding.where:
        return ""
    line = finding.where[0]
    counter = line.counter.partition(" ")[0]
    part = "all"
    if line.share < WHOLE:
        part = format_share(line.share)
    place = f"{basename(line.file)}:{line.line}"
    counts_these = counter == "instructions" and "instructions" in shorten_cause(finding.cause)
    if counter in NAMED and not counts_these:
        where = f", and {part} of {NAMED[counter]} from {place}"
    elif counts_these:
        where = f", {part} of them at {place}"
    elif counter in STALLS and "waiting" not in shorten_cause(finding.cause):
        where = f", and {part} of the waiting is at {place}"
    else:
        where = f", {part} of {OF_CAUSE.get(counter, 'it')} at {place}"
    if call := describe_call_site(line):
        where += f" ({call})"
    return where


_UNIT_AT = re.compile(r"[A-Z][\w' ]*? (?=at [\d.]+ % of (its )?peak)")


def _join_verdict_and_cause(diagnosis: Diagnosis, cause: str) -> Clause:
    """Return the verdict and its cause as one clause; a unit that the verdict names is named once."""
    bound = _describe_verdict_beside_cause(cause, diagnosis)
    unit = BY_LIMITER.get(diagnosis.limiter or "")
    named = _UNIT_AT.match(cause)
    if unit and named and diagnosis.top and diagnosis.top.rule == unit.rule:
        return f"{bound}, {cause[named.end() :]}"
    return f"{bound}: {cause}"


def _describe_verdict_beside_cause(cause: str, diagnosis: Diagnosis) -> Clause:
    """Return the verdict for a sentence that goes on with the cause, without naming a wait twice."""
    wait = WAITS.get(diagnosis.limiter or "", "")
    if diagnosis.bound != "latency" or not wait:
        return say_verdict(diagnosis)
    if wait in cause:
        return "is limited by latency"
    return f"is limited by latency (warps wait most for {wait})"


def get_first_clause_of_advice(advice: str) -> str:
    """Return advice up to its first full stop or semicolon that is not in brackets, without that."""
    # A bracket that is never closed is a letter like others: each text is matched in one way only.
    sentence = re.match(r"(?:\([^()]*\)|[^(]|\((?![^()]*\)))*?[.;](?=\s|$)", advice)
    if sentence is None:
        return advice
    return sentence.group().rstrip(".;")


def describe_unprofiled_kernels(rows: Sequence[LaunchRow]) -> SentenceOrEmpty:
    """Return which kernels ncu could not profile, where the answer is about others; "" for none."""
    names = []
    for row in rows[1:]:
        name = shorten_name(row.median_launch.kernel, NAME)
        if row.median_launch.status != "ok" and name not in names:
            names.append(name)
    if not names or rows[0].median_launch.status != "ok":
        return ""
    listed = " and ".join(names[:2])
    if len(names) > 2:
        listed = f"{names[0]} and {len(names) - 1} other kernels"
    return f"ncu failed to profile {listed}; the answer covers the other launches."


def _say_without_lead(run: JudgedLaunch, place_text: str) -> list[str]:
    """Return the verdict apart from the first finding that is left: that is not the verdict's cause."""
    verdict = (
        f"{shorten_name(run.kernel, NAME)} {say_verdict(run.diagnosis)}: {run.diagnosis.because}."
    )
    said = [verdict, "The finding that explains this was left out."]
    if run.top:
        said.append(
            f"Next finding: {run.top.rule}: {run.top.cause}{place_text}; "
            f"{describe_finding_gain(run.top)}."
        )
    return said


def _is_guess(run: JudgedLaunch, top: LaunchFinding) -> bool:
    """Return whether a finding without a number leads, and the waits were not collected."""
    is_open = (
        run.diagnosis.bound == "latency" and run.diagnosis.limiter is None and has_no_metrics(run)
    )
    return is_open and top.expect is None and top.gain is None


def find_larger_gains(run: JudgedLaunch) -> list[LaunchFinding]:
    """Return the findings that gain clearly more than what leads gains, the largest gain first.

    A lead that has only a bound (a launch that is too short, the hardware's limit) is compared with
    none: "at most 1.27x; largest expected gain: 1.74x" contradicts itself.
    """
    if run.status != "ok" or run.top is None or _has_wide_interval(run.top):
        return []
    if run.top.expect is None and run.top.measured_reachable_gain is None:
        return []
    least = CLEARLY_MORE * _get_known_gain_or_one(run.top)
    larger = []
    for finding in run.diagnosis.findings:
        counts = finding.status == "fires" and not finding.note and not finding.repeats
        if counts and _get_known_gain_or_one(finding) > least and not _may_gain_nothing(finding):
            larger.append(finding)
    return sorted(larger, key=_get_known_gain_or_one, reverse=True)


def _may_gain_nothing(finding: LaunchFinding) -> bool:
    """Return whether the interval of a gain that nobody measured has 1 in it."""
    if finding.measured_reachable_gain is not None or finding.expect is None:
        return False
    return finding.expect.low < 1


def _get_known_gain_or_one(finding: LaunchFinding) -> FactorOrOne:
    """Return what a fix gained, or is expected to; 1 where neither has a number of its own."""
    if finding.measured_reachable_gain is not None:
        return finding.measured_reachable_gain
    if finding.expect is None or _has_wide_interval(finding):
        return 1.0
    return finding.expect.gain


def _has_wide_interval(finding: LaunchFinding) -> bool:
    """Return whether its interval is too wide for a number that could be compared with another's."""
    return (
        finding.expect is not None
        and finding.expect.is_wide
        and finding.measured_reachable_gain is None
    )


def _say_larger_but_unsure(row: LaunchRow, rows: Sequence[LaunchRow]) -> SentenceOrEmpty:
    """Return which launch may save more than the sure one that leads; "" where none does."""
    if row.seconds_saved <= 0 or len(rows) < 2:
        return ""
    largest = max(rows[1:], key=lambda other: other.seconds_saved)
    if largest.sure_seconds_saved > 0 or largest.seconds_saved <= row.seconds_saved:
        return ""
    name = shorten_name(largest.median_launch.kernel, NAME)
    return f"{name} may save more, about {format_seconds(largest.seconds_saved)}, or nothing."


def _say_saving(row: LaunchRow, rows: Sequence[LaunchRow], fix: LaunchFinding) -> ClauseOrEmpty:
    """Return how much time a fix saves: "saving about 25 µs of 55 µs"; "" where that is not known."""
    if not row.known_times_sorted:
        return ""
    whole = _say_whole_time(row, rows) or f" of {format_seconds(row.total)}"
    if fix.expect is not None and _has_wide_interval(fix):
        if fix.expect.low < NOTHING_TO_WIN:
            return ""
        ends = (fix.expect.low, fix.expect.high)
        least, most = (format_seconds(row.total * (1 - 1 / end)) for end in ends)
        return f"saving {_drop_same_unit(least, most)} to {most}{whole}"
    gain = _get_known_gain_or_one(fix)
    if gain < NOTHING_TO_WIN:
        return ""
    return f"saving about {format_seconds(row.total * (1 - 1 / gain))}{whole}"


def _drop_same_unit(first: str, second: str) -> str:
    """Return the first of two quantities, without its unit where the second has the same one."""
    number, _, unit = first.partition(" ")
    if second.endswith(f" {unit}"):
        return number
    return first


def _say_time(row: LaunchRow, rows: Sequence[LaunchRow]) -> SentenceOrEmpty:
    """Return how much time a row takes: "It takes 47 µs."; "" where it has no duration."""
    if not row.known_times_sorted:
        return ""
    takes = "It takes"
    if len(row.launches) > 1:
        takes = f"Its {len(row.launches):,} launches take"
    return f"{takes} {format_seconds(row.total)}{_say_whole_time(row, rows)}."


def _say_whole_time(row: LaunchRow, rows: Sequence[LaunchRow]) -> ClauseOrEmpty:
    """Return the time of all rows of one report; "" for a single row, and of several reports."""
    if len(rows) == 1:
        return ""
    device = row.median_launch.device
    beside = [other for other in rows if other.median_launch.device == device]
    if len({other.median_launch.report for other in rows}) > 1:
        return ""
    whole = f" of {format_seconds(sum(other.total for other in beside))} in all"
    if len(beside) < len(rows):
        whole += f" on {name_device(row.median_launch)}"
    return whole


def describe_row_order(rows: Sequence[LaunchRow]) -> Clause:
    """Return in which order rows of launches are, and why the first one leads where others say more."""
    if len(rows) < 2:
        return ORDER
    if rows[0].leads_with_uncollected_cause(sum(row.total for row in rows)):
        return f"{ORDER}; first, the launch that takes most time and lacks counters"
    if rows[0] is find_leading_row_with_sure_saving(rows):
        return f"{ORDER}; first, the largest saving that is sure"
    return ORDER


def say_total_time(rows: Sequence[LaunchRow]) -> Clause:
    """Return the time of all rows under ncu; of several GPUs that of each, as a sum says nothing.

    Of many GPUs those with most time are named, and the others counted.
    """
    totals: dict[str, float] = {}
    for row in rows:
        if row.known_times_sorted:
            device = name_device(row.median_launch)
            totals[device] = totals.get(device, 0.0) + row.total
    if not totals:
        return "no durations"
    if len(totals) == 1:
        return f"{format_seconds(sum(totals.values()))} in all"
    longest = sorted(totals, key=lambda device: -totals[device])[:GPUS]
    named = [f"{format_seconds(totals[device])} on {device}" for device in longest]
    if more := len(totals) - len(named):
        named.append(format_count_with_noun(more, "other GPU"))
    return f"{', '.join(named[:-1])} and {named[-1]}"


def say_launches_and_time(rows: Sequence[LaunchRow]) -> Clause:
    """Return how many launches there are, and the time of all, if they are of one report."""
    count = format_count_with_noun(sum(len(row.launches) for row in rows), "launch", "launches")
    failed = sum(len(row.launches) for row in rows if row.median_launch.status != "ok")
    if failed:
        count += f" ({failed:,} not measured)"
    reports = {row.median_launch.report for row in rows}
    if len(reports) > 1:
        return f"{count} in {len(reports)} reports"
    return f"{count}, {say_total_time(rows)}"


def join_report_arguments(rows: Sequence[LaunchRow]) -> str:
    """Return the reports of rows as arguments of a command; REPORTS where they are too many to type."""
    reports = dict.fromkeys(str(run.report) for row in rows for run in row.launches)
    if len(reports) > REPORTS:
        return "REPORTS"
    return " ".join(shlex.quote(escape_text(report)) for report in reports)


def has_no_metrics(run: JudgedLaunch) -> bool:
    return run.diagnosis.bound == "unknown" or bool(run.diagnosis.missing)


def format_count_and_median(row: LaunchRow) -> str:
    """Return how often, and how long one takes: "105 launches, median 17.4 µs"."""
    count = format_count_with_noun(len(row.launches), "launch", "launches")
    if not row.known_times_sorted:
        return count
    return f"{count}, median {format_seconds(row.median_launch.time)}"


def format_count_and_times(row: LaunchRow) -> str:
    """Return how often and how long: "105 launches, 1.83 ms in all; median 17.4 µs (17.2 to 17.8)"."""
    count = format_count_with_noun(len(row.launches), "launch", "launches")
    if not row.known_times_sorted:
        return count
    mid = row.median_launch.time
    size = next((f for f in (1.0, 1e-3, 1e-6) if mid >= f), 1e-9)
    noun = format_seconds(size).split()[1]
    shortest, median, longest = (
        format_three_figures(t / size)
        for t in (row.known_times_sorted[0], mid, row.known_times_sorted[-1])
    )
    total = format_seconds(row.total)
    return f"{count}, {total} in all; median {median} {noun} ({shortest} to {longest})"
