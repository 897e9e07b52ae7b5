"""The skill that `profkit mcp --skill` prints: every command in it is one, and it says no other name."""

from __future__ import annotations

import re
import shlex

from profkit.cli.app import import_verbs


def test_the_skill_names_commands_that_there_are(run) -> None:
    result = run("mcp", "--skill")
    assert result.exit_code == 0
    text = result.stdout
    head = text.split("---")[1]
    assert re.search(r"^name: profkit$", head, re.M)
    assert len(re.search(r"^description: (.+)$", head, re.M)[1]) <= 1024, "what skills allow"
    verbs = import_verbs()
    named = re.findall(r"`profkit ([^`]+)`", text)
    assert len(named) >= 5
    for command in named:
        verb, *args = shlex.split(command)
        assert verb in verbs
        if args:
            verbs[verb].make_context(verb, args)
