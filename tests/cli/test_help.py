"""Help: every verb and flag is told with an example that works; completion knows the names."""

from __future__ import annotations

import re
import shlex
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from profkit.cli.app import (
    GROUPS,
    START,
    app,
    import_verbs,
    list_verbs_alphabetically,
    read_verb_summaries_by_group,
)
from profkit.diagnosis.rules import ALL
from profkit.errors import ProfkitError
from profkit.program.rules import BY_ID
from profkit.reports.metrics import CATALOGUE
from tests.conftest import ROOT
from tests.found import find_files

COMMANDS: dict[str, Any] = import_verbs()
EXAMPLES = {name: command.verb.examples for name, command in COMMANDS.items()}
each_verb = pytest.mark.parametrize("verb", sorted(COMMANDS))


def _words(example: str) -> list[str]:
    return shlex.split(example, comments=True)


def test_every_verb_has_examples() -> None:
    assert [name for name, examples in EXAMPLES.items() if not examples] == []


def test_the_list_of_verbs_says_what_their_own_help_begins_with() -> None:
    said = dict(chain.from_iterable(read_verb_summaries_by_group().values()))
    assert said == {name: verb.get_short_help_str(80) for name, verb in COMMANDS.items()}


def test_the_list_of_verbs_has_each_in_its_group() -> None:
    groups = {
        name: group
        for group, listed in read_verb_summaries_by_group().items()
        for name, _ in listed
    }
    assert groups == {name: command.verb.group for name, command in COMMANDS.items()}
    assert set(groups.values()) == set(GROUPS)


def test_a_verb_of_no_group_is_named_with_the_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "odd.py"
    file.write_text('GROUP = "Nowhere"\nSUMMARY = "Do something odd."\n')
    monkeypatch.setattr("profkit.cli.app._find_modules_of_verbs", lambda: {"odd": ("odd", file)})
    with pytest.raises(ProfkitError, match=r"odd\.py: GROUP is none of") as refused:
        read_verb_summaries_by_group()
    assert GROUPS[0] in refused.value.hint


def test_every_file_with_a_verb_is_one() -> None:
    files = find_files(ROOT / "profkit", "**/*.py")
    names = sorted(file.stem for file in files if "\n@options.verb(" in file.read_text())
    assert names == list_verbs_alphabetically(), "a folder of verbs holds nothing else"


@each_verb
def test_help_tells_the_exit_statuses(run, verb: str) -> None:
    _, _, tail = run(verb, "--help").stdout.partition("\nExit status:\n")
    exits = COMMANDS[verb].verb.exits
    assert {0, 2} <= set(exits) <= {0, 1, 2}
    told = " ".join(tail.partition("\n\n")[0].split())
    assert told == " ".join(f"{code} {exits[code]}" for code in sorted(exits))


@each_verb
def test_every_flag_stands_in_an_example(verb: str) -> None:
    said = {word for example in EXAMPLES.get(verb, ()) for word in _words(example)}
    flags = [p for p in COMMANDS[verb].params if p.param_type_name == "option"]
    left = [p.opts[0] for p in flags if p.name != "help" and not said & set(p.opts)]
    assert left == []


@pytest.mark.parametrize("example", [x for of in EXAMPLES.values() for x in of])
def test_every_example_is_one_that_the_parser_takes(example: str) -> None:
    program, verb, *args = _words(example)
    assert program == "profkit"
    assert example in EXAMPLES[verb]
    COMMANDS[verb].make_context(verb, args)


@each_verb
def test_help_ends_with_the_examples(run, verb: str) -> None:
    shown = run(verb, "--help").stdout
    *_, tail = shown.partition("\nExamples:\n")
    assert [line.strip() for line in tail.splitlines()] == COMMANDS[verb].verb.example_lines
    assert max(map(len, shown.splitlines())) <= 80


@each_verb
def test_every_example_follows_a_sentence_that_begins_with_a_verb(verb: str) -> None:
    lines = COMMANDS[verb].verb.example_lines
    assert lines[0].startswith("# ")
    for line in lines:
        if line.startswith("# "):
            assert line.endswith("."), line
            assert line.split()[1].rstrip(",") in BEGINNINGS, f"{verb}: {line}"
        else:
            assert "#" not in line, "the sentence is above"


@each_verb
def test_help_names_no_type_and_says_defaults_in_one_way(run, verb: str) -> None:
    shown = run(verb, "--help").stdout
    listed = shown.partition("\nExamples:\n")[0]
    assert not re.search(r"<(int|float|path|text)( range)?> |\[x>|\[default|\[required", listed)
    for param in COMMANDS[verb].params:
        if param.param_type_name == "option" and not param.is_flag:
            assert param.metavar, f"{verb} {param.opts[0]}: what it takes has no name"


def test_the_program_s_help_lists_every_verb_and_ends_with_where_to_start(run) -> None:
    shown = run("--help").stdout
    assert [line.strip() for line in shown.partition("\nStart here:\n")[2].splitlines()] == list(
        START
    )
    for name, summary in chain.from_iterable(read_verb_summaries_by_group().values()):
        assert f"  {name} " in shown
        assert len(summary) <= 66, "one line of a terminal of 80 columns"
    for command in START:
        if command.startswith("profkit"):
            _, verb, *args = _words(command)
            assert verb in COMMANDS
            if args != ["--help"]:
                COMMANDS[verb].make_context(verb, args)


CASES = {
    "diagn": {"diagnose"},
    "explain shared-b": {"shared-bandwidth", "shared-bank-conflicts"},
    "explain tensor_busy_a": {"tensor_busy_active"},
    "compare stage2s": {"stage2swizzle"},
    "compare stage1 stage2s": {"stage2swizzle"},
    "compare artifacts/copy.1G": {
        f"artifacts/{p.name}" for p in find_files(ROOT / "artifacts", "copy.1G*")
    },
    "compare --fail-on sl": {"slower"},
    "decide stage2s": {"stage2swizzle"},
    "decide stage3b --against stage2s": {"stage2swizzle"},
    "compare a b --case A": {"A", "A-causal"},
    "check --variant stage2sw": {"stage2swizzle"},
    "check --kernels kernels --variant stage2sw": {"stage2swizzle"},
    "check --kernels tests --variant stage2sw": {"stage2swizzle"},
    "bench --variant sdpa-cu": {"sdpa-cudnn"},
    "profile --case B": {"B", "B-causal"},
    "tune --variant stage2sw": {"stage2swizzle"},
    "profile --set ba": {"basic"},
    "profile --cache-control n": {"none"},
    "profile --variant no-such": set(),
}


@pytest.fixture
def complete(run, monkeypatch: pytest.MonkeyPatch):
    """What bash is offered for a line."""
    from typer.testing import CliRunner

    monkeypatch.chdir(ROOT)

    def ask(line: str) -> set[str]:
        words = ["profkit", *line.split()]
        asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        env = {"_PROFKIT_COMPLETE": "complete_bash", **asked}
        found = CliRunner().invoke(app, [], prog_name="profkit", env=env)
        assert not found.stderr
        return set(found.stdout.split())

    return ask


@pytest.mark.parametrize("line", CASES)
def test_completion(complete, line: str) -> None:
    assert complete(line) == CASES[line]


def test_completion_knows_every_rule_and_metric(complete) -> None:
    names = {*CATALOGUE, *(rule.id for rule in ALL), *BY_ID}
    first = {name[0] for name in names}
    offered = set().union(*(complete(f"explain {letter}") for letter in first))
    assert offered == names


def test_completion_without_kernels_or_records_is_no_error(
    complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROFKIT_KERNELS", str(tmp_path / "nowhere"))
    assert complete("check --variant st") == set()
    assert complete("profile --case B") == set()
    assert complete("compare st") == set()


# Flags that many verbs have, with one meaning; profile and tune have more than ten others.
FORMS = {"json", "markdown", "brief", "form", "quiet"}
SHARED = FORMS | {"version", "output", "opens", "artifacts", "kernel", "where", "help"}


@pytest.mark.parametrize("verb", sorted(set(COMMANDS) - {"profile", "tune"}))
def test_a_verb_is_one_question_with_few_options(verb: str) -> None:
    options = [p.name for p in COMMANDS[verb].params if p.param_type_name == "option"]
    most = 13 if verb == "triage" else 10  # it records as well as judges: when, how long, what
    assert len(set(options) - SHARED) <= most


# What a sentence of help begins with: what the option makes profkit do, or what to give.
BEGINNINGS = set(
    """Add Allow Capture Check Choose Compare Compile Consider Continue Create Default Describe Do Draw
    Estimate Exit Explain Fail Find Flush Give Keep Let Limit List Mark Measure Name Needs Print Profile
    Query Read Record Require Run Search Serve Set Show Skip Spend Start Stop Test Time Turn Use Write
    Decide With Install Leave Ask Diagnose Annotate Look Judge Serve Try First""".split()
)
BEGINNINGS |= {word.title() for word in (ROOT / "tests" / "verbs.txt").read_text().split()}


@each_verb
def test_every_sentence_of_help_begins_with_a_verb(verb: str) -> None:
    command = COMMANDS[verb]
    texts = [command.verb.summary, *(getattr(p, "help", "") or "" for p in command.params)]
    for text in texts:
        for sentence in re.split(r"(?<=[.;]) (?=[A-Z])", " ".join(text.split())):
            first = re.match(r"[A-Za-z]+", sentence)
            assert not first or first[0] in BEGINNINGS, f"{verb}: {sentence}"
