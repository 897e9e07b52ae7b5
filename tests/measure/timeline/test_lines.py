"""Whose line a launch is: frames walked without the GIL, over a CUPTI that needs no GPU.

Every Python of this machine whose frames are known is tried; with torch, what its backward pass says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.collect import timeline
from profkit.program.readers import injected
from profkit.program.timeline import Process, SourcePlace
from tests.measure.timeline.standin_cupti import build_over_standin, is_cupti_here

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.slow,
    pytest.mark.skipif(not is_cupti_here(), reason="no CUPTI here"),
]
START = """
import ctypes, os
standin = ctypes.CDLL({standin!r})
lib = ctypes.CDLL({lib!r})
lib.InitializeInjection()
numbers = iter(range(1, 1 << 20))
def launch(node=0):
    number = next(numbers)
    standin.standin_launch(number, ctypes.c_uint64(node))
    return number
def capture(node):
    number = next(numbers)
    standin.standin_capture(number, ctypes.c_uint64(node))
    return number
def clone(node, original):
    standin.standin_clone(ctypes.c_uint64(node), ctypes.c_uint64(original))
"""
KNOWN = ("3.11", "3.12", "3.13", "3.14")


def find_pythons() -> dict[str, str]:
    """Interpreters here whose frames are known, by version; ours is one of them."""
    found = {"{}.{}".format(*sys.version_info): sys.executable}
    for version in KNOWN:
        for path in (shutil.which(f"python{version}"), *find_managed(version)):
            if path is None or version in found:
                continue
            told = subprocess.run(
                [path, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"],
                capture_output=True,
                text=True,
                check=False,
            )
            if told.returncode == 0 and told.stdout.strip() == version:
                found[version] = path
    return {version: path for version, path in found.items() if version in KNOWN}


def find_managed(version: str) -> list[str]:
    """Interpreters that a manager of versions has put into the home folder."""
    versions = Path.home() / ".pyenv" / "versions"
    return [str(path) for path in sorted(versions.glob(f"{version}.*/bin/python3"))]


PYTHONS = find_pythons()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_over_standin(tmp_path_factory.mktemp("standin"))


class Recording:
    """A program that was run, and what the reader makes of what was left of it."""

    def __init__(
        self,
        library: Path,
        folder: Path,
        code: str,
        python: str = sys.executable,
        processes: int = 1,
        **env: str,
    ) -> None:
        self.program = folder / "program.py"
        self.out = folder / "out"
        self.out.mkdir()
        standin = str(library.with_name("libcupti.so"))
        start = START.format(standin=standin, lib=str(library))
        (folder / "profkit_recorder_started.py").write_text(start)
        self.program.write_text(code)
        path = os.pathsep.join([str(timeline.INJECTED), str(folder)])
        own = {"PROFKIT_TIMELINE": str(self.out), "PYTHONPATH": path, **env}
        done = subprocess.run(
            [python, str(self.program)],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.said = done.stdout
        self.timeline = injected.read_injected_recording(self.out)
        assert len(self.timeline.processes) == processes
        self.process = self.timeline.processes[0]

    def line_of(self, mark: str) -> str:
        """The place of the line that ends in a mark."""
        for number, text in enumerate(self.program.read_text().split("\n"), 1):
            if text.endswith(f"# {mark}"):
                return f"{self.program}:{number}"
        raise AssertionError(mark)

    def places(self) -> dict[int, SourcePlace]:
        """The place of each launch."""
        return {a.correlation: place_of(self.process, a.origin) for a in self.process.activities}


def place_of(process: Process, origin: int) -> SourcePlace:
    return process.places[origin] if origin >= 0 else SourcePlace()


FRAMES = """
from profkit_recorder_started import launch

def inner():
    return launch()  # inner

class Thing:
    def method(self):
        return inner()  # method

def generator():
    yield launch()  # generator

def recurse(depth):
    return launch() if depth == 0 else recurse(depth - 1)  # recurse

for _ in range(3):
    print("inner", Thing().method())
    print("generator", *generator())
    print("recurse", recurse(50))
    print("lambda", (lambda: launch())())  # lambda
    print("sorted", sorted([1], key=lambda _: print("key", launch())))  # key
print("module", launch())  # module
import threading
def work():
    print("thread", launch())  # thread
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("version", PYTHONS)
def test_each_launch_has_its_line_in_every_known_python(
    version: str, library: Path, tmp_path: Path
) -> None:
    of = Recording(library, tmp_path, FRAMES, PYTHONS[version])
    places = of.places()
    told = [line.split() for line in of.said.splitlines()]
    launches = [(mark, int(number)) for mark, number, *_ in told if mark != "sorted"]
    assert len(launches) == 17
    for mark, number in launches:
        assert places[number].line == of.line_of(mark), mark
    assert not [note for note in of.timeline.notes if "no line" in note]


def test_a_graph_s_kernel_has_the_line_that_was_captured(library: Path, tmp_path: Path) -> None:
    """Replayed kernels have the number of a copy of a copy of the node that was captured."""
    code = (
        "from profkit_recorder_started import capture, clone, launch\n"
        "def first():\n"
        "    capture(100)  # first\n"
        "def second():\n"
        "    capture(101)  # second\n"
        "first(); second()\n"
        "for node in (100, 101): clone(node + 100, node); clone(node + 200, node + 100)\n"
        "for _ in range(3):\n"
        "    print('first', launch(300))\n"
        "    print('second', launch(301))\n"
        "    print('unknown', launch(999))\n"
    )
    of = Recording(library, tmp_path, code)
    places = of.places()
    for mark, number in (line.split() for line in of.said.splitlines()):
        wanted = "" if mark == "unknown" else of.line_of(mark)
        assert places[int(number)].line == wanted


def test_without_lines_nothing_is_walked(library: Path, tmp_path: Path) -> None:
    of = Recording(library, tmp_path, FRAMES, PROFKIT_LINES="0")
    assert set(of.places().values()) == {SourcePlace()}
    assert not list(of.out.glob("*.launches"))
    assert not list(of.out.glob("*.stacks"))


def test_frames_that_do_not_check_are_off_and_said(library: Path, tmp_path: Path) -> None:
    """The hook says that it sees other frames than those that were walked."""
    code = (
        "import profkit_recorder_stacks as stacks\n"
        "stacks.write_stack = lambda *_: 0\n"
        "from profkit_recorder_started import launch\n"
        "for _ in range(3): launch()\n"
    )
    of = Recording(library, tmp_path, code)
    assert set(of.places().values()) == {SourcePlace()}
    assert any("frames were not where they are" in note for note in of.timeline.notes)


def test_a_stack_that_cannot_be_named_costs_its_own_line_alone(
    library: Path, tmp_path: Path
) -> None:
    code = (
        "import profkit_recorder_stacks as stacks\n"
        "write = stacks.write_stack\n"
        "def fail(*given):\n"
        "    stacks.write_stack = write\n"
        "    raise RuntimeError\n"
        "from profkit_recorder_started import launch\n"
        "launch()  # first\n"
        "stacks.write_stack = fail\n"
        "launch()\n"
        "launch()  # third\n"
    )
    of = Recording(library, tmp_path, code)
    lines = [place.line for _, place in sorted(of.places().items())]
    assert lines == [of.line_of("first"), "", of.line_of("third")]


def test_torch_compile_does_not_look_at_our_hook(library: Path, tmp_path: Path) -> None:
    """It looks at each function of Python that a thread begins, and would compile ours."""
    code = (
        "import sys, types\n"
        "asked = []\n"
        "compiler = types.ModuleType('torch._C._dynamo.eval_frame')\n"
        "compiler.set_eval_frame = asked.append\n"
        "sys.modules[compiler.__name__] = compiler\n"
        "from profkit_recorder_started import launch\n"
        "launch()\n"
        "print(asked)\n"
    )
    of = Recording(library, tmp_path, code)
    assert of.said == "[None, None]\n"


def test_a_function_that_a_library_generates_is_not_the_user_s(
    library: Path, tmp_path: Path
) -> None:
    code = (
        "from profkit_recorder_started import launch\n"
        "space = {'__name__': 'torch.generated', 'launch': launch}\n"
        "exec('def call():\\n    return launch()', space)\n"
        "call = space['call']\n"
        "call()  # user\n"
    )
    of = Recording(library, tmp_path, code)
    assert [place.line for place in of.places().values()] == [of.line_of("user")]


def test_a_python_without_our_hook_is_said(library: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.path = [p for p in sys.path if 'inject' not in p]\n"
        "sys.modules.pop('profkit_recorder_stacks', None)\n"
        "from profkit_recorder_started import launch\n"
        "launch()\n"
    )
    of = Recording(library, tmp_path, code)
    assert any("did not find profkit's hook" in note for note in of.timeline.notes)


def test_a_pending_error_and_the_collector_are_left_as_they_were(
    library: Path, tmp_path: Path
) -> None:
    code = (
        "import gc\n"
        "from profkit_recorder_started import launch\n"
        "try:\n"
        "    raise KeyError('mine')\n"
        "except KeyError as error:\n"
        "    launch()\n"
        "    print(repr(error), gc.isenabled())\n"
        "gc.disable()\n"
        "launch()\n"
        "print(gc.isenabled())\n"
    )
    of = Recording(library, tmp_path, code)
    assert of.said == "KeyError('mine') True\nFalse\n"


def test_ten_thousand_stacks_keep_their_numbers(library: Path, tmp_path: Path) -> None:
    """The table grows from 2,048 places four times."""
    lines = "\n".join(f"    launch()  # line {n}" for n in range(10_000))
    code = f"from profkit_recorder_started import launch\ndef many():\n{lines}\nmany()\nmany()\n"
    of = Recording(library, tmp_path, code)
    places = of.places()
    assert len(places) == 20_000
    for number in range(1, 20_001):
        wanted = (number - 1) % 10_000 + 3
        assert places[number].line == f"{of.program}:{wanted}"


def test_a_forked_child_writes_nothing_into_its_parent_s_files(
    library: Path, tmp_path: Path
) -> None:
    code = (
        "import os\n"
        "from profkit_recorder_started import launch\n"
        "launch()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for _ in range(100): launch()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "launch()\n"
    )
    of = Recording(library, tmp_path, code)
    assert sorted(of.places()) == [1, 2]


def test_what_a_killed_program_launched_has_its_line(library: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from profkit_recorder_started import launch\n"
        "if len(sys.argv) == 1 and os.fork() == 0:\n"
        "    os.execv(sys.executable, [sys.executable, __file__, 'child'])\n"
        "elif len(sys.argv) > 1:\n"
        "    for _ in range(10): launch()  # killed\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.wait()\n"
        "launch()\n"
    )
    folder = tmp_path
    program, out = folder / "program.py", folder / "out"
    out.mkdir()
    standin = str(library.with_name("libcupti.so"))
    (folder / "profkit_recorder_started.py").write_text(
        START.format(standin=standin, lib=str(library))
    )
    program.write_text(code)
    path = os.pathsep.join([str(timeline.INJECTED), str(folder)])
    env = {**os.environ, "PROFKIT_TIMELINE": str(out), "PYTHONPATH": path}
    subprocess.run([sys.executable, str(program)], env=env, check=True, capture_output=True)
    of = injected.read_injected_recording(out)
    killed = next(p for p in of.processes if len(p.activities) == 10)
    assert {place_of(killed, a.origin).line for a in killed.activities} == {f"{program}:6"}


def test_calls_at_the_end_of_the_process_and_of_threads_do_no_harm(
    library: Path, tmp_path: Path
) -> None:
    """Libraries free the GPU's memory in handlers of their own, after a thread's objects are gone."""
    source = tmp_path / "late.cpp"
    source.write_text(
        "#include <cstdint>\n"
        "#include <cstdlib>\n"
        'extern "C" void standin_launch(uint32_t, uint64_t);\n'
        "struct Late {\n"
        "  ~Late() { standin_launch(77, 0); }\n"
        "};\n"
        'extern "C" void begin() {\n'
        "  static thread_local Late late;\n"
        "  (void)&late;\n"
        "  std::atexit([] { standin_launch(78, 0); });\n"
        "}\n"
    )
    late = tmp_path / "late.so"
    folder = str(library.parent)
    command = ["g++", "-shared", "-fPIC", "-O2", str(source), f"-L{folder}", "-lcupti"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}", "-o", str(late)], check=True)
    code = (
        "import ctypes, threading\n"
        "from profkit_recorder_started import launch\n"
        f"late = ctypes.CDLL({str(late)!r})\n"
        "late.begin()\n"
        "launch()\n"
        "def work():\n"
        "    late.begin()\n"
        "    launch()\n"
        "threads = [threading.Thread(target=work) for _ in range(50)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "launch()\n"
    )
    of = Recording(library, tmp_path, code)
    assert len(of.process.activities) >= 52


def test_no_python_is_said_of_a_program_in_c(library: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(
        "#include <stdint.h>\n"
        "int InitializeInjection(void);\n"
        "void standin_launch(uint32_t, uint64_t);\n"
        "int main(void) { InitializeInjection(); standin_launch(1, 0); return 0; }\n"
    )
    program = tmp_path / "program"
    folder = str(library.parent)
    command = ["g++", "-x", "c", str(source), "-x", "none", str(library), f"-L{folder}", "-lcupti"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}", "-o", str(program)], check=True)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([program], env={**os.environ, "PROFKIT_TIMELINE": str(out)}, check=True)
    notes = injected.read_injected_recording(out).notes
    assert any("no Python in this process" in note for note in notes)


def test_stacks_that_were_damaged_cost_their_lines_alone(library: Path, tmp_path: Path) -> None:
    of = Recording(library, tmp_path, FRAMES)
    (stacks,) = of.out.glob("*.stacks")
    lines = stacks.read_text().splitlines()
    first = json.loads(lines[0])
    stacks.write_text("\n".join(['{"id": 1, "frames": 7}', "[]", "\x00", *lines[1:]])[:-40])
    again = injected.read_injected_recording(of.out).processes[0]
    named = sum(a.origin >= 0 for a in again.activities)
    assert first["id"] == 1
    assert 0 < named < len(again.activities)


RANKS = """
import os, sys
def first():
    return launch()  # first
def second():
    return launch()  # second
children = []
for rank in (0, 1):
    os.environ["RANK"] = str(rank)
    child = os.fork()  # before there is anything of CUDA, as a launcher of ranks does
    if child == 0:
        from profkit_recorder_started import launch
        for _ in range(20):
            if rank == 0: first()
            else: second()
        os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
"""


def test_ranks_that_were_forked_keep_their_lines_apart(library: Path, tmp_path: Path) -> None:
    """Their launches have the same numbers, and so have their stacks."""
    of = Recording(library, tmp_path, RANKS, processes=2)
    processes = {process.rank: process for process in of.timeline.processes}
    for rank, mark in enumerate(("first", "second")):
        activities = processes[rank].activities
        assert [a.correlation for a in activities] == list(range(1, 21))
        places = {place_of(processes[rank], a.origin) for a in activities}
        assert {place.line for place in places} == {of.line_of(mark)}


# As torch.nn.Module is called, where self is in a cell, and where it is not.
MODULES = """
from profkit_recorder_started import launch
import sys, types
package = types.ModuleType("torch.nn.modules.module")
source = '''
class Module:
    def _call_impl(self, *args):
        {within}
        return self.forward(*args)
    __call__ = _call_impl
    parts = ()
    def named_modules(self):
        return [("", self), *self.parts]
'''
exec(source, package.__dict__)
sys.modules["torch.nn.modules.module"] = package
class Leaf(package.Module):
    def forward(self):
        print(self.name, launch())  # leaf
class Net(package.Module):
    def forward(self):
        for leaf in self.leaves: leaf()
net = Net()
net.leaves = Leaf(), Leaf()
net.parts = [(f"leaves.{{n}}", leaf) for n, leaf in enumerate(net.leaves)]
for name, leaf in net.parts: leaf.name = name
launch()
for _ in range(3): net()
"""


@pytest.mark.parametrize("within", ["inner = lambda: self", "pass"], ids=["cell", "plain"])
@pytest.mark.parametrize("version", PYTHONS)
def test_the_module_is_named_in_every_known_python(
    version: str, within: str, library: Path, tmp_path: Path
) -> None:
    of = Recording(library, tmp_path, MODULES.format(within=within), PYTHONS[version])
    places = of.places()
    told = [line.split() for line in of.said.splitlines()]
    assert len(told) == 6
    for name, number in told:
        place = places[int(number)]
        assert (place.line, place.module, place.kind) == (of.line_of("leaf"), name, "Leaf")
