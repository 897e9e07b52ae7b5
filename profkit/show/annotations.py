"""Findings  ->  one line each for editors and CI: gcc's form, GitHub's annotations, or SARIF 2.1.0.

All three say `file:line`, the rule, the cause, and what to expect of a fix. A path is the one that the
compiler saw, or where Python ran; where the current folder has the same file, it is named from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.launches import LaunchRow
from profkit.diagnosis.rule import LaunchFinding
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.files import get_current_folder, is_file
from profkit.program.rules import BY_ID as STEP_RULES
from profkit.show.text import words
from profkit.show.text.escape import escape_text, shorten_name
from profkit.show.views.triage import say_saving

if TYPE_CHECKING:
    from profkit.units import RuleName, TriageJson


NAME = 60  # characters of a kernel's name in a message
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PYTHON_LINE = re.compile(r"([^\s():]+\.py):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """A finding at a line of a file."""

    file: str
    line: int | None  # None where only the recording is known
    rule: str
    cause: str
    gain: str
    advice: str
    matters: bool  # whether fixing it is expected to save anything

    @property
    def message(self) -> str:
        return f"{self.rule}: {self.cause}; {self.gain}"


# What there is to annotate.


def annotate_launches(rows: Iterable[LaunchRow]) -> list[Annotation]:
    """Return the findings of launches that have their source lines, the worst launch first."""
    found: dict[tuple[str, int | None, str], Annotation] = {}
    for row in rows:
        run = row.median_launch
        for finding in run.diagnosis.findings:
            if finding.status != "fires" or finding.note or finding.repeats:
                continue
            annotation = _annotate_finding(finding, run.kernel, run.report)
            place = (annotation.file, annotation.line, annotation.rule)
            found.setdefault(place, annotation)
    return list(found.values())


def _annotate_finding(finding: LaunchFinding, kernel: str, report: str) -> Annotation:
    file = report
    line = None
    if finding.where:
        most = finding.where[0]
        file = most.file
        line = most.line
    is_slower = finding.expect is not None and finding.expect.gain <= 1
    return Annotation(
        file=find_local_path(file),
        line=line,
        rule=finding.rule,
        cause=f"{shorten_name(kernel, NAME)}: {finding.cause}",
        gain=words.describe_finding_gain(finding),
        advice=finding.advice,
        matters=not finding.at_roof and not is_slower,
    )


def annotate_step(document: TriageJson, recording: str) -> list[Annotation]:
    """Return the findings of a "profkit.triage/1" document, in its order."""
    found = []
    for row in document["findings"]:
        file = recording
        line = None
        where = row["where"] or ""
        cause = row["say"]
        if place := _PYTHON_LINE.search(where):
            file = place.group(1)
            line = int(place.group(2))
        elif where:
            cause = f"{cause} ({shorten_name(where, NAME)})"
        annotation = Annotation(
            file=find_local_path(file),
            line=line,
            rule=row["category"],
            cause=cause,
            gain=say_saving(row, document["step"]),
            advice=row["try"],
            matters=row["saves_ms"]["expect"] > 0,
        )
        found.append(annotation)
    return found


def find_local_path(recorded: str) -> str:
    """Return the path under the current folder that ends as a recorded one does; else that one.

    A report has the paths of the machine that compiled it, a runner has its own checkout: the longest
    end that is a file here is the same file. A name alone says too little (every library has a
    utils.py): there the folder that it was in has to have the current folder's name.
    """
    parts = PurePosixPath(recorded.replace("\\", "/")).parts
    if ".." in parts:
        return recorded
    if recorded.startswith("/"):
        begin = 1
    else:
        begin = 0
    for first in range(begin, len(parts)):
        local = Path(*parts[first:])
        is_name_alone = first > begin and first == len(parts) - 1
        if is_name_alone and parts[first - 1] != get_current_folder().name:
            break
        if _is_local_file(local):
            return local.as_posix()
    return recorded


def _is_local_file(path: Path) -> bool:
    try:
        return not path.is_absolute() and is_file(path)
    except (ProfkitError, OSError, ValueError):  # a name that no file can have
        return False


# How they are written.


def format_gcc_warnings(annotations: Sequence[Annotation]) -> str:
    """Return what problem matchers and vim's errorformat take: file:line:1: warning: ..."""
    lines = []
    for each in annotations:
        if each.line:
            place = f"{each.file}:{each.line}:1"
        else:
            place = each.file
        if each.matters:
            level = "warning"
        else:
            level = "note"
        lines.append(f"{escape_text(place)}: {level}: {escape_text(each.message)}")
    return "".join(f"{line}\n" for line in lines)


def format_github_commands(annotations: Sequence[Annotation]) -> str:
    """Return GitHub's workflow commands, which annotate the lines of a pull request."""
    lines = []
    for each in annotations:
        properties = {"file": each.file}
        if each.line:
            properties["line"] = str(each.line)
        properties["title"] = f"profkit: {each.rule}"
        listed = ",".join(f"{key}={_escape_property(text)}" for key, text in properties.items())
        if each.matters:
            level = "warning"
        else:
            level = "notice"
        if each.advice:
            text = f"{each.message}\n{each.advice}"
        else:
            text = each.message
        lines.append(f"::{level} {listed}::{_escape_message(text)}")
    return "".join(f"{line}\n" for line in lines)


def _escape_message(text: str) -> str:
    lines = [escape_text(line) for line in text.split("\n")]
    return "%0A".join(line.replace("%", "%25").replace("\r", "%0D") for line in lines)


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def format_sarif_log(annotations: Sequence[Annotation]) -> str:
    """Return a SARIF 2.1.0 log, which code scanning and editors read."""
    rules = list(dict.fromkeys(each.rule for each in annotations))
    driver = {
        "name": "profkit",
        "rules": [_make_sarif_rule(rule) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "results": [_make_sarif_result(each, rules.index(each.rule)) for each in annotations],
    }
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return dumps(document, indent=1) + "\n"


def _make_sarif_rule(rule: RuleName) -> dict[str, Any]:
    known = BY_ID.get(rule) or STEP_RULES.get(rule)
    if known:
        title = known.title
    else:
        title = rule
    return {
        "id": rule,
        "shortDescription": {"text": title},
        "help": {"text": f"profkit explain {rule}"},
    }


def _make_sarif_result(each: Annotation, index: int) -> dict[str, Any]:
    if each.advice:
        text = f"{each.message}. {each.advice}"
    else:
        text = each.message
    location = {
        "artifactLocation": {"uri": _write_uri(each.file)},
        "region": {"startLine": each.line or 1},
    }
    return {
        "ruleId": each.rule,
        "ruleIndex": index,
        "level": "warning" if each.matters else "note",
        "message": {"text": escape_text(text)},
        "locations": [{"physicalLocation": location}],
    }


def _write_uri(path: str) -> str:
    from urllib.parse import quote

    quoted = quote(path.replace("\\", "/").encode("utf-8", "surrogateescape"))
    if quoted.startswith("/"):
        return f"file://{quoted}"
    return quoted


WRITERS: Mapping[str, Callable[[Sequence[Annotation]], str]] = {
    "gcc": format_gcc_warnings,
    "github": format_github_commands,
    "sarif": format_sarif_log,
}
