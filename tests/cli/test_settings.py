"""[tool.profkit] in pyproject.toml: what the verbs do where no flag says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.cli.app import find_pyproject_with_settings
from profkit.cli.settings import read_defaults_of_verbs
from profkit.errors import ProfkitError
from tests.conftest import ROOT

REPORT = str(ROOT / "artifacts" / "stage2.B.ncu-rep")


def write_settings(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(f"[project]\nname = 'x'\n[tool.profkit]\n{text}\n")
    return file


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("artefacts = 'runs'", "artefacts: unknown key", "did you mean artifacts?"),
        ("artifacts = 3", "artifacts: not a folder's name", "for example"),
        ("ignore = 'tail-effect'", "ignore: not a list", "for example"),
        ("ignore = ['tail-efect']", "ignore: tail-efect: unknown", "did you mean tail-effect"),
        ("fail-on = ['slow']", "fail-on: slow: unknown", "did you mean slower"),
        ("ignore = [", "not TOML", "fix the file"),
        (f"{'a.' * 100_000}b = 1", "a line has more than 1000 dots", "fix the file"),
    ],
)
def test_a_bad_key_is_named_with_its_file(text: str, says: str, hint: str, tmp_path: Path) -> None:
    file = write_settings(tmp_path, text)
    with pytest.raises(ProfkitError, match=says) as wrong:
        read_defaults_of_verbs(file, tmp_path)
    assert str(file) in wrong.value.message
    assert hint in wrong.value.hint


def test_each_verb_has_its_own(tmp_path: Path) -> None:
    text = "artifacts = 'runs'\nfail-on = ['slower']\nignore = ['clocks-unsteady']"
    file = write_settings(tmp_path, text)
    defaults = read_defaults_of_verbs(file, tmp_path / "src")
    assert defaults["compare"] == {"artifacts": "../runs", "fail_on": ["slower"]}
    assert defaults["diagnose"] == {"ignore": ["clocks-unsteady"]}
    assert "triage" not in defaults


def test_the_nearest_file_upwards_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_settings(tmp_path, "")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert find_pyproject_with_settings() == file
    (tmp_path / "a" / "pyproject.toml").write_text("[project]")
    assert find_pyproject_with_settings() is None


def test_a_rule_is_left_out_and_a_flag_wins(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_settings(tmp_path, "ignore = ['shared-bank-conflicts']")

    def list_rules(*flags: str) -> set[str]:
        done = run("diagnose", REPORT, "--json", "--lines", "0", "--quiet", *flags)
        assert done.exit_code == 0, done.stderr
        said.append(done.stderr.strip())
        return {row["rule"] for row in json.loads(done.stdout)["launches"][0]["findings"]}

    said: list[str] = []
    assert "shared-bank-conflicts" not in list_rules()
    assert "shared-bank-conflicts" in list_rules("--ignore", "tail-effect")
    # What a file of a repository leaves out is said even to --quiet: nobody typed it.
    left_out = "left out shared-bank-conflicts (fires in 1 of 1 launch)"
    assert said == [f"{tmp_path / 'pyproject.toml'}: [tool.profkit] ignore: {left_out}", ""]
    brief = run("diagnose", REPORT, "--brief").stdout
    assert "is limited by shared memory: shared at 53.8 % of peak" in brief
    assert "The finding that explains this was left out." in brief
    wrong = run("diagnose", REPORT, "--ignore", "tail-efect")
    assert wrong.exit_code == 2
    assert "did you mean tail-effect" in wrong.stderr
