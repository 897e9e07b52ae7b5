"""A variant's language: what its file says is read and never run; one more language is one file."""

import contextlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.lab.measure import languages
from profkit.lab.measure.languages import language as registry
from profkit.lab.measure.languages import plan
from profkit.lab.measure.languages.plan import (
    LaunchArgs,
    decode_array_address,
    make_array_at_coded_address,
)
from profkit.lab.measure.languages.triton import (
    LANGUAGE,
    remove_comments_and_layout,
    summarize_traceback,
)
from profkit.lab.measure.variants import build, variants

from .conftest import Machine
from .test_verbs import profkit

BUILD = ("check", "--build-only", "--arch", "90")
TRITON = '''"""Doubled by Triton.

Reads once, writes once.

after: one   fixes: uncoalesced-access   tune: BLOCK=128,256   budget: spills=0
"""
import triton
import triton.language as tl

{extra}
BLOCK = 128


@triton.jit
def twice(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def launch(x, y, args):
    n = args.size[0]
    twice[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK, num_warps=4)
'''


def write(folder: Path, extra: str = "", text: str = TRITON) -> Path:
    path = folder / "tri_doubled.py"
    path.write_text(text.replace("{extra}", extra))
    return path


def test_a_header_is_read_and_nothing_is_run(tmp_path: Path) -> None:
    read = variants.read_variant(write(tmp_path, "raise SystemExit('the file was run')"))
    assert (read.id, read.header.title, read.header.after) == ("tri", "Doubled by Triton.", "one")
    assert read.header.text == "Reads once, writes once."
    assert read.header.fixes == ("uncoalesced-access",)
    assert read.budget.spills == 0
    assert read.space.values == {"BLOCK": ("128", "256")}
    assert read.with_tunables(BLOCK="256").flags == ("BLOCK=256",)
    assert read.language.name == "Triton"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("def launch(", "def lunch(", "no function 'launch'"),
        ("def twice(x,", "def twice(x y,", "tri_doubled.py:15: invalid syntax"),
        ("tune: BLOCK", "tune: BLOK", "'tune:' names BLOK"),
        ("budget: spills=0", "flags: -O3", "'flags: -O3' is for nvcc"),
        ('"""Doubled by Triton.', '_ = """Doubled by Triton.', "has no header"),
        ("fixes:", "fixs:", "unknown key 'fixs:'"),
    ],
)
def test_a_file_that_cannot_be_is_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TRITON
    with pytest.raises(ProfkitError) as caught:
        variants.read_variant(write(tmp_path, text=TRITON.replace(old, new)))
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_prose_is_no_code(tmp_path: Path) -> None:
    one = variants.read_variant(write(tmp_path)).source_hash
    prose = TRITON.replace("Reads once", "It reads once").replace(
        ", mask=at < n)\n", ", mask=at < n)  # y\n\n", 1
    )
    assert variants.read_variant(write(tmp_path, "# a comment", prose)).source_hash == one
    assert variants.read_variant(write(tmp_path, "MORE = 1")).source_hash != one
    assert remove_comments_and_layout("x = '#'  # no\n") == "x = '#'"
    assert remove_comments_and_layout("x = (") == "x = ("


def test_other_python_files_are_no_variants(tmp_path: Path) -> None:
    (tmp_path / "scaling").mkdir()
    for name in ("problem.py", "__init__.py", "conftest.py"):
        (tmp_path / "scaling" / name).write_text("import triton\n")
    (tmp_path / "scaling" / "help_er.py").write_text('text = "import triton"\n')
    write(tmp_path / "scaling", text=TRITON.replace("after: one", ""))
    assert [v.id for v in variants.read_all_variants(tmp_path)] == ["tri"]


@pytest.mark.slow
def test_list_shows_what_cannot_be_compiled_here(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(machine.kernels / "doubling", text=TRITON.replace("after: one", ""))
    machine.write("one_x.cu")
    done = json.loads(profkit("list", "--json").stdout)
    rows = {row["variant"]: row for row in done["variants"]}
    assert set(rows) == {"tri", "one"}
    assert rows["one"]["missing"] == ""
    if importlib.util.find_spec("triton") is None:
        assert rows["tri"]["missing"].startswith("Triton is not installed: pip install")
        assert "Triton is not installed" in profkit("list").stdout
        said = json.loads(profkit(*BUILD, "--all", "--json", status=2).stdout)
        errors = {b["variant"]: b["error"] for b in said["builds"]}
        assert errors["one"] is None
        assert errors["tri"].startswith("Triton is not installed")


TOY = '''"""C, for a language that the project does not have."""
import hashlib
import subprocess

from profkit.lab.measure.languages.language import Language
from profkit.records.header import parse_header


def text_hash(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compile(jobs, work, programs, parallel):
    for i, job in enumerate(jobs):
        for out, how in ((f"{i}.o", "-c"), (f"{i}.so", "-shared")):
            command = ["gcc", "-x", "c", "-fPIC", how, "-o", work / out, job.path]
            done = subprocess.run(command, capture_output=True, text=True)
            (work / f"{i}.log").write_text(done.stderr)
    return {}


LANGUAGE = Language(
    name="Toy",
    suffix=".toy",
    header=parse_header,
    code_hash=lambda path, keys: text_hash(path),
    text_hash=text_hash,
    flags=lambda header, defines: (),
    compiler=lambda programs: "gcc",
    compile=compile,
)
'''


@pytest.mark.slow
def test_one_more_language_is_one_file(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "more"
    place.mkdir()
    (place / "toy.py").write_text(TOY)
    monkeypatch.setattr(languages, "__path__", [*languages.__path__, str(place)])
    registry.list_languages.cache_clear()
    try:
        path = machine.kernels / "doubling" / "toy_x.toy"
        path.write_text("/* A toy. */\nint profkit_launch(const void* a) { return 801; }\n")
        machine.write("one_x.cu")
        found = variants.read_all_variants(machine.kernels)
        assert [(v.id, v.language.name) for v in found] == [("one", "CUDA"), ("toy", "Toy")]
        made = build.compile_variants_not_built_yet(found, ["90"], tmp_path)
        assert [(b.error, b.compiler.split()[0]) for b in made] == [(None, "nvcc"), (None, "gcc")]
        assert all(b.library and b.library.is_file() for b in made)
        path.write_text("/* A toy. */\nint profkit_launch(\n")
        (bad,) = build.compile_variants_not_built_yet(
            [variants.read_variant(path)], ["90"], tmp_path
        )
        assert "error" in (bad.error or "")
    finally:
        registry.list_languages.cache_clear()
        sys.modules.pop("profkit.lab.measure.languages.toy", None)


def test_arrays_are_told_by_their_addresses() -> None:
    args = LaunchArgs({"size": (4, 8), "scale": 0.5}, "90", 132)
    more = args.scratch((16,), "float32", zero=True)
    x, y = (
        make_array_at_coded_address("in", 1, "float16", (4, 8)),
        make_array_at_coded_address("out", 0, "float16", (4, 8)),
    )
    assert (x.stride(), x.numel(), x.element_size(), x.size(1)) == ((8, 1), 32, 2, 8)
    assert decode_array_address(x.data_ptr() + 64) == plan.Parameter("in", 1, 64)
    assert decode_array_address(y.data_ptr()) == plan.Parameter("out", 0, 0)
    for where, index in (("in", 31), ("out", 15)):  # as many as ProfkitArgs has room for
        last = make_array_at_coded_address(where, index, "int8", (1,))
        assert decode_array_address(last.data_ptr()) == plan.Parameter(where, index, 0)
    assert decode_array_address(more.data_ptr()) == plan.Parameter("scratch", 0, 0)
    assert args.requested == [plan.Scratch(64, True)]
    with pytest.raises(ProfkitError, match="other memory"):
        decode_array_address(4096)
    with pytest.raises(ProfkitError, match="no such type"):
        args.scratch((1,), "half")


def test_a_plan_says_what_each_case_starts_and_what_its_launcher_is_given() -> None:
    start = plan.KernelStart(0, (3, 2, 1), (128, 1, 1), 512, (), cluster=2)
    values = {"size": (1, 2), "stride": (2, 1), "scale": 0.1, "causal": True}
    whole = plan.CallPlan(
        [plan.KernelImage("k<N=2>", "k", b"")], [plan.CasePlan("B", values, (start,))]
    )
    assert json.loads(json.dumps(whole.to_json())) == {
        "B": [{"kernel": "k<N=2>", "grid": [6, 2, 1], "block": [128, 1, 1], "dynamic_smem": 512}]
    }
    tables = whole.write_c_tables()
    assert "Case CASES[] = {{{1, 2, 0, 0, 0, 0}, {2, 1, 0, 0, 0, 0}, 1036831949, 1, 0, 1," in tables
    assert "Start STARTS[] = {{0, {3, 2, 1}, {128, 1, 1}, 512, 2, 0, 0, 0, 0}}" in tables
    assert "PLAN_ID" in tables
    for changed in ({"scale": 0.2}, {"causal": False}):
        other = plan.CallPlan(whole.images, [plan.CasePlan("B", {**values, **changed}, (start,))])
        assert tables != other.write_c_tables()


def test_a_traceback_becomes_one_line(tmp_path: Path) -> None:
    path = tmp_path / "tri_x.py"
    output = f"""at case A
at case n17
Traceback (most recent call last):
  File "{path}", line 24, in launch
    twice[(1,)](x, y)
  File "somewhere/else.py", line 3, in run
AttributeError: module 'triton.language' has no attribute 'swizzle9d'
"""
    said = summarize_traceback(output, path)
    assert said.startswith("tri_x.py:24: AttributeError: module 'triton.language' has no attribute")
    assert said.endswith("at case n17")


@pytest.fixture
def faked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A stand-in machine on which Triton is installed: its compiler knows one kernel."""
    fake = str(Path(__file__).parent / "standin" / "faketriton")
    monkeypatch.setenv("PYTHONPATH", f"{fake}:{os.environ['PYTHONPATH']}")
    return machine


PLAIN = TRITON.replace("after: one   fixes: uncoalesced-access   ", "").replace(
    "import triton.language as tl", ""
)
PLAIN = PLAIN.replace(": tl.constexpr", "")


@pytest.mark.slow
def test_all_verbs_take_a_variant_in_triton(faked: Machine) -> None:
    """Recorded, compiled, started by player.c: checked, timed, profiled and compared like any other."""
    write(faked.kernels / "doubling", text=PLAIN)
    faked.write("cuda_x.cu")
    rows = json.loads(profkit("list", "--json").stdout)["variants"]
    gpu = Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()
    missing = "" if gpu else "no GPU here: it can be built, not checked or timed"
    assert {r["variant"]: r["missing"] for r in rows} == {"tri": missing, "cuda": ""}
    built = json.loads(profkit(*BUILD, "--variant", "tri", "--json").stdout)
    (made,) = built["builds"]
    assert (made["error"], made["kernels"][0]["regs"]) == (None, 24)
    assert made["kernels"][0]["name"] == "attention_scalar<B=128>"
    launch = {**made["launches"]["B"][0]}
    assert (launch["grid"], launch["block"], launch["dynamic_smem"]) == (
        [4, 1, 1],
        [128, 1, 1],
        2048,
    )
    checks = json.loads(profkit("check", "--all", "--sanitize", "--json").stdout)["checks"]
    assert {c["variant"]: c["status"] for c in checks} == {"tri": "right", "cuda": "right"}
    timed = json.loads(profkit("bench", "--all", "--case", "B", "--json").stdout)["cases"]["B"]
    assert {row["name"] for row in timed} == {"tri", "cuda"}
    profkit("profile", "--variant", "tri", "--case", "B", "--json")
    record = json.loads((faked.recorded("B") / "tri.json").read_text())
    assert record["source"]["file"] == "doubling/tri_doubled.py"
    assert record["versions"]["compiler"].startswith("Triton")
    assert record["launches"][0]["grid"] == [4, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "twice[(tri",
            "twyce[(tri",
            r"tri_doubled.py:\d+: NameError: name 'twyce' is not.*case B",
        ),
        ("    n = args", "    return\n    n = args", "launch started no kernel"),
        ("    n = args", "    while True: pass\n    n = args", "was still compiling after 2 s"),
    ],
)
def test_what_fails_while_compiling_is_one_line_and_the_rest_goes_on(
    faked: Machine, monkeypatch: pytest.MonkeyPatch, old: str, new: str, says: str
) -> None:
    if "while True" in new:  # nothing else has a limit that a busy machine could come to
        monkeypatch.setenv("PROFKIT_COMPILE_SECONDS", "2")
    assert old in PLAIN
    write(faked.kernels / "doubling", text=PLAIN.replace(old, new, 1))
    faked.write("cuda_x.cu")
    done = profkit("check", "--all", "--case", "B", status=2)
    assert "right" in done.stdout
    assert re.search(says, done.stderr), done.stderr


@pytest.mark.slow
def test_a_case_that_is_declined_is_not_supported(faked: Machine) -> None:
    refuses = "    if args.size[0] > 550: raise NotImplementedError\n    n = args"
    write(faked.kernels / "doubling", text=PLAIN.replace("    n = args", refuses))
    (check,) = json.loads(profkit("check", "--all", "--json").stdout)["checks"]
    states = {c["case"]: c["status"] for c in check["cases"]}
    assert (states["B"], states["C"]) == ("right", "not supported")


@settings(max_examples=60, deadline=None)
@given(st.text() | st.text("()[]{}\n :'\"#\\x00abc=tune", max_size=200), st.booleans())
def test_any_text_is_a_header_or_one_line(text: str, whole: bool) -> None:
    source = TRITON.replace("{extra}", text) if whole else text
    with contextlib.suppress(ProfkitError):  # any other error is one of ours
        LANGUAGE.header(source, "x.py")
    remove_comments_and_layout(source)


def test_a_script_that_uses_the_language_is_no_kernel_where_no_problem_is(tmp_path: Path) -> None:
    script = tmp_path / "train_gpt.py"
    script.write_text("import triton\n")
    assert not registry.is_kernel_file(script)
    (tmp_path / "problem.py").write_text("")
    assert registry.is_kernel_file(script)
    tests = Path(__file__).parents[1]
    assert not [p for p in tests.rglob("*.py") if registry.is_kernel_file(p)], (
        "a text holds a kernel"
    )
