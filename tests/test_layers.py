"""The shape of the source: who may import whom, one heavy import per room, what a reader takes in."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.found import find_files

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PACKAGE = ROOT / "profkit"

# What each room may import of the others. profkit/__init__.py, the public names, stands on top of
# all but measure; the verbs stand on top of everything.
MAY_USE = {
    "errors": set(),
    "files": {"errors"},
    "records": {"errors", "files"},
    "interpreter": set(),
    "reports": {"errors", "files", "interpreter", "records"},
    "model": {"errors", "files", "records", "reports", "judge"},
    "judge": {"errors"},
    "diagnosis": {"errors", "files", "records", "reports", "judge", "model"},
    "evidence": {"errors", "files", "records", "reports", "judge", "model", "diagnosis"},
    "program": {"errors", "files", "records", "reports", "judge", "diagnosis"},
    "lab": set(),
    "collect": {"errors", "files", "reports"},
    "lab.measure": {"errors", "files", "interpreter", "records", "reports", "evidence", "collect"},
    "lab.tune": {
        "errors",
        "files",
        "records",
        "reports",
        "model",
        "diagnosis",
        "evidence",
        "collect",
        "lab.measure",
    },
    "lab.ablation": {
        "errors",
        "files",
        "interpreter",
        "records",
        "model",
        "evidence",
        "collect",
        "lab.measure",
    },
    "lab.flags": {"errors", "show", "cli", "lab.measure"},
    "lab.verbs": {
        "errors",
        "files",
        "records",
        "reports",
        "evidence",
        "show",
        "cli",
        "collect",
        "lab.flags",
        "lab.measure",
        "lab.ablation",
        "lab.tune",
    },
    "show": {
        "errors",
        "files",
        "records",
        "reports",
        "model",
        "judge",
        "diagnosis",
        "evidence",
        "program",
    },
    "api": {"errors", "reports", "model", "diagnosis", "evidence", "show", "program"},
    "cli": {
        "errors",
        "files",
        "records",
        "reports",
        "model",
        "diagnosis",
        "evidence",
        "collect",
        "lab.measure",
        "program",
        "show",
        "api",
    },
    "__main__": {"cli"},
}
# What a number is counted in, any room may say.
for rooms in MAY_USE.values():
    rooms.add("units")
MAY_USE["units"] = set()
# A heavy or private import and the files that may have it.
ONLY_IN = {
    "ncu_report": ("profkit/reports/",),
    "matplotlib": ("profkit/show/plots/",),
    "mpl_toolkits": ("profkit/show/plots/",),
    "jinja2": ("profkit/show/page.py",),
    "typer": ("profkit/cli/", "profkit/lab/verbs/"),
    "click": (),
    "mcp": ("profkit/cli/protocol.py",),
    "torch": ("profkit/lab/measure/", "profkit/collect/inject/"),
    "optuna": ("profkit/lab/tune/",),
    "sqlalchemy": ("profkit/lab/tune/",),
    "pynvml": ("profkit/lab/measure/",),
    "subprocess": (
        "profkit/collect/",
        "profkit/evidence/commits.py",
        "profkit/lab/measure/",
        "profkit/lab/tune/",
        "profkit/reports/isolated.py",
    ),
    # What they read runs: a child that hostile bytes have taken over would have its parent too.
    **dict.fromkeys(
        ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "multiprocessing"), ()
    ),
}
# Imported inside functions only, so that `profkit --help` does not pay for them.
LATE = {
    "ncu_report",
    "pandas",
    "numpy",
    "scipy",
    "matplotlib",
    "torch",
    "optuna",
    "rich",
    "pyarrow",
    "jinja2",
    "duckdb",
}
# What a reader has to take in: (bound, goal). A bound is what was measured last and is only ever
# moved towards its goal. No formatter changes any of these; there are no other budgets.
MEASURES = {
    "nodes per statement": (10.9, 10),
    "comprehensions per 1,000 nodes": (3.95, 3),
    "conditional expressions per 1,000 nodes": (1.2, 1.5),
    "functions with a one-word name, per cent": (3.0, 30),
    "functions that do not begin with a verb, per cent": (8.5, 50),
    "functions over 300 nodes, per cent": (0.2, 2),
    "longest chain of imports": (16, 14),  # the server for agents: two files below its verb
}
# Modules of profkit that a command imports: (bound, goal).
IMPORTED = {
    ("profile", "--help"): (13, 25),
    ("triage", "--help"): (12, 12),
    ("mcp", "--help"): (12, 12),
    ("triage", "tests/program/data/attention_with_bias.planted.json.gz"): (66, 65),
    ("diagnose", "artifacts/stage1.B.ncu-rep"): (59, 50),
}
# The first word of a function's name that says what it does.
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())


@dataclass(frozen=True)
class Source:
    """One Python file of the project."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text("utf-8"), str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.path.read_text("utf-8").splitlines()

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        return _room_of(self.module)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self, *, top_only: bool = False) -> Iterator[str]:
        """Dotted names that this file imports; type-checking-only ones do not count."""
        for node in _walk(self.tree, into_functions=not top_only):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        inside = self.path.relative_to(ROOT).parent.parts
        parts = inside[: len(inside) - node.level + 1]
        return ".".join((*parts, *filter(None, [node.module])))


def _room_of(module: str) -> str:
    """The folder or file of a module in the package; the lab's rooms stand one folder deeper."""
    parts = module.split(".")
    if len(parts) == 1:
        return "api"
    depth = 3 if parts[1] == "lab" else 2
    return ".".join(parts[1:depth])


def _walk(node: ast.AST, *, into_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not into_functions:
            continue
        yield child
        yield from _walk(child, into_functions=into_functions)


FILES = [Source(p) for p in find_files(PACKAGE, "**/*.py")]
MODULES = {f.module for f in FILES}
# Python beside the package: probes and problems, generators and calibration.
BESIDE = [
    Source(p) for folder in ("kernels", "tools") for p in find_files(ROOT / folder, "**/*.py")
]


@pytest.fixture(scope="module", autouse=True)
def trees_are_let_go() -> Iterator[None]:
    """Let go of what was read of the files: their trees take 100 MB."""
    yield
    for file in (*FILES, *BESIDE):
        for name in ("tree", "nodes", "lines"):
            vars(file).pop(name, None)


def _module_of(dotted: str) -> str:
    """The module of the project that an imported dotted name lives in."""
    while dotted not in MODULES:
        dotted = dotted.rpartition(".")[0]
    return dotted


def _inner(file: Source, *, top_only: bool = False) -> set[str]:
    names = (n for n in file.imports(top_only=top_only) if n.split(".")[0] == "profkit")
    return {_module_of(n) for n in names} - {file.module}


def test_every_room_is_known() -> None:
    assert {f.room for f in FILES} <= set(MAY_USE)


@pytest.mark.parametrize("file", BESIDE, ids=lambda file: file.name)
def test_what_is_imported_from_beside_is_there(file: Source) -> None:
    """mypy does not look at probes: a name that was renamed would be seen on a GPU first."""
    missing = []
    for dotted in file.imports():
        if dotted.split(".")[0] != "profkit":
            continue
        module = _module_of(dotted)
        names = dotted.removeprefix(module).strip(".")
        if names and not hasattr(importlib.import_module(module), names.split(".")[0]):
            missing.append(dotted)
    assert missing == []


def test_imports_go_one_way() -> None:
    wrong = {}
    for file in FILES:
        rooms = {_room_of(module) for module in _inner(file)}
        if against := rooms - {file.room} - MAY_USE[file.room]:
            wrong[file.name] = against
    assert not wrong


def test_only_its_verbs_and_one_file_import_the_lab() -> None:
    """The lab's own verbs are found by name; the rest of the command line asks cli/lab.py."""
    importing = {
        file.name
        for file in FILES
        for module in _inner(file)
        if module.startswith("profkit.lab") and not file.room.startswith("lab")
    }
    assert importing == {"profkit/cli/lab.py"}


def test_no_import_cycles() -> None:
    # A package imports its parts and they may need one another, so late imports count too.
    graph = {f.module: _inner(f, top_only=f.room == "api") for f in FILES}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def _part(module: str) -> str:
    """The sub-package of a module, or the module itself where it stands in its room's own folder."""
    depth = 2 + len(_room_of(module).split("."))
    return ".".join(module.split(".")[:depth])


def test_parts_of_a_room_go_one_way() -> None:
    graph: dict[str, set[str]] = {}
    for file in FILES:
        if file.room == "api" or file.path.name == "__init__.py":
            continue
        parts = {_part(m) for m in _inner(file) if m.startswith(f"profkit.{file.room}.")}
        graph.setdefault(_part(file.module), set()).update(parts - {_part(file.module)})
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"parts use one another: {' -> '.join(error.args[1])}")


def test_heavy_imports_stay_in_their_room() -> None:
    assert not [
        f"{file.name}: {name}"
        for file in FILES
        for name in file.imports()
        if not file.name.startswith(ONLY_IN.get(name.split(".")[0], ("",)))
    ]


def test_help_pays_for_no_heavy_import() -> None:
    late = {
        file.name: {n.split(".")[0] for n in file.imports(top_only=True)} & LATE
        for file in FILES
        if file.room in {"api", "cli", "errors"}
    }
    assert not {name: heavy for name, heavy in late.items() if heavy}


def test_only_collect_starts_ncu() -> None:
    tools = {"ncu", "nv-nsight-cu-cli", "nvcc", "nvidia-smi"}
    started = {
        f"{file.name}:{node.lineno}"
        for file, node in _nodes(*FILES, *BESIDE)
        if isinstance(node, ast.List) and node.elts and _constant(node.elts[0]) in tools
    }
    assert not {where for where in started if "collect/profiler.py" not in where}


def test_probes_touch_the_gpu_through_measure() -> None:
    """One wrapper of CUDA, one way to start programs."""
    kernels = [f for f in BESIDE if "kernels" in f.name]
    started = {
        f.name: {n.split(".")[0] for n in f.imports()} & {"subprocess", "pynvml"} for f in kernels
    }
    assert not {name: used for name, used in started.items() if used}
    assert not [
        f"{f.name}:{call.lineno}" for f, call in _calls(*kernels) if _name(call) == "ctypes.CDLL"
    ]


def test_nothing_is_caught_blindly_evaluated_or_given_to_a_shell() -> None:
    blind = []
    for file, node in _nodes(*FILES):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "Exception"
            # A thread's errors of any kind are carried to the caller: it has to say so.
            told = caught == "BaseException" and "# noqa: BLE001 - " in file.lines[node.lineno - 1]
            if caught in {"Exception", "BaseException"} and not told:
                blind.append(f"{file.name}:{node.lineno} catches {caught}")
    # recv and read_pickle give what has been unpickled: Connection, numpy's and pandas' readers.
    unsafe = {"eval", "exec", "os.system", "os.popen"}
    calls = [
        f"{file.name}:{call.lineno} {_name(call)}"
        for file, call in _calls(*FILES)
        if _name(call) in unsafe
        or _name(call).rpartition(".")[2] in {"recv", "read_pickle"}
        or {k.arg for k in call.keywords} & {"shell", "allow_pickle"}
    ]
    assert not [*blind, *calls]


# What touches the file system: in profkit/files.py only, where every error of the system is known.
# There, /proc apart, names come from whoever uses profkit; a file and a call stand here with the reason
# why that place asks the system itself.
TOUCHES = frozenset(
    "is_dir is_file exists stat lstat iterdir glob rglob resolve expanduser open read_text read_bytes "
    "absolute is_symlink readlink samefile cwd home is_fifo is_socket is_mount touch".split()
)
TOUCHES_OF_OS = frozenset(
    "open os.open os.stat os.lstat os.scandir os.listdir os.walk os.access os.readlink os.getcwd "
    "os.path.exists os.path.lexists os.path.isfile os.path.isdir os.path.islink os.path.getsize "
    "os.path.getmtime os.path.realpath os.path.abspath os.path.expanduser os.path.samefile "
    "glob.glob glob.iglob".split()
)
_PACKAGE = "a file of the package itself"
_OWN = "a file that this process, or its child for it, has just written in a folder of its own"
TOUCHES_ITSELF = {
    "profkit/cli/app.py": (_PACKAGE, "glob read_text open"),  # and the null device
    "profkit/diagnosis/pages.py": (_PACKAGE, "read_text"),
    "profkit/lab/measure/languages/triton.py": (_PACKAGE, "read_bytes"),
    "profkit/lab/measure/variants/dry.py": (_PACKAGE, "read_bytes"),
    "profkit/lab/measure/variants/problem.py": (_PACKAGE, "iterdir read_text"),
    "profkit/lab/measure/variants/variants.py": (_PACKAGE, "resolve"),
    "profkit/program/findings/case.py": (_PACKAGE, "read_text"),
    "profkit/records/gpus.py": (_PACKAGE, "read_text"),
    "profkit/show/page.py": (_PACKAGE, "read_text"),
    "profkit/lab/measure/aot.py": (_OWN, "read_text"),
    "profkit/lab/measure/capture.py": (_OWN, "glob"),
    "profkit/lab/measure/cuda/code_hash.py": (_OWN, "read_bytes"),
    "profkit/lab/measure/languages/cuda.py": (_OWN, "glob read_text"),
    "profkit/lab/measure/launch.py": (_OWN, "stat open read_text"),
    "profkit/collect/timeline.py": (_OWN, "glob read_bytes"),  # and of the package
    "profkit/lab/measure/variants/build.py": (_OWN, "read_text read_bytes resolve"),
    "profkit/program/readers/injected.py": (_OWN, "glob read_text read_bytes"),
    "profkit/reports/contents.py": (_OWN, "open"),
    "profkit/collect/process.py": ("/proc", "listdir read_text"),
    "profkit/evidence/history.py": ("/proc; and what fsspec lists of a URL", "read_text glob"),
    "profkit/evidence/commits.py": ("an archive in memory", "open"),
    "profkit/program/readers/gathered.py": ("a member of a zip", "open"),
    "profkit/lab/measure/session.py": ("opens a worker, no file", "open"),
    "profkit/collect/inject/": (
        "in the user's program, where profkit is not",
        "resolve is_file read_text abspath open glob",
    ),
    "profkit/reports/container.py": ("turns errors into a file's status", "stat abspath"),
    "profkit/reports/isolated.py": ("a current folder that may have no name any more", "open"),
    "profkit/cli/pictures.py": ("a current folder that may have no name any more", "open"),
    "profkit/interpreter.py": (
        "begins before any other file of profkit can be imported",
        "isfile abspath samefile open",
    ),
    "profkit/lab/tune/storage.py": ("a journal that Optuna opens by itself", "touch"),
}


def test_only_one_file_touches_the_file_system() -> None:
    allowed = {place: set(calls.split()) for place, (_, calls) in TOUCHES_ITSELF.items()}
    past = []
    for file, call in _calls(*FILES):
        name = _name(call)
        last = name.rpartition(".")[2]
        is_method = isinstance(call.func, ast.Attribute) and last in TOUCHES
        if file.name == "profkit/files.py" or not (is_method or name in TOUCHES_OF_OS):
            continue
        places = [place for place in allowed if file.name.startswith(place)]
        if not any(last in allowed[place] for place in places):
            past.append(f"{file.name}:{call.lineno} {name}")
    assert not past, "use profkit.files, whose functions know every error of the system"


def test_only_cli_and_show_print() -> None:
    assert not [
        f"{file.name}:{call.lineno}"
        for file, call in _calls(*(f for f in FILES if f.room not in {"cli", "show", "lab.verbs"}))
        if _name(call) in {"print", "sys.stdout.write"}
    ]


def test_the_first_line_says_what_the_file_is_for() -> None:
    assert not [f.name for f in FILES if not (ast.get_docstring(f.tree) or "").strip()]


def test_a_reader_takes_in_no_more_than_before() -> None:
    has = _measure_reading()
    has["longest chain of imports"] = _longest_chain()
    assert has.keys() == MEASURES.keys()
    assert not {name: (n, MEASURES[name]) for name, n in has.items() if n > MEASURES[name][0]}


def _measure_reading() -> dict[str, float]:
    """What a reader of profkit/ has to take in."""
    nodes = statements = comprehensions = conditionals = 0
    functions = large = named = one_word = without_verb = 0
    for _, node in _nodes(*FILES):
        nodes += 1
        statements += isinstance(node, ast.stmt)
        comprehensions += isinstance(node, COMPREHENSIONS)
        conditionals += isinstance(node, ast.IfExp)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        functions += 1
        large += sum(1 for _ in ast.walk(node)) > 300
        if _is_named_by_another(node):
            continue
        words = node.name.strip("_").split("_")
        named += 1
        one_word += len(words) == 1
        without_verb += words[0].lower() not in VERBS
    return {
        "nodes per statement": nodes / statements,
        "comprehensions per 1,000 nodes": 1000 * comprehensions / nodes,
        "conditional expressions per 1,000 nodes": 1000 * conditionals / nodes,
        "functions with a one-word name, per cent": 100 * one_word / named,
        "functions that do not begin with a verb, per cent": 100 * without_verb / named,
        "functions over 300 nodes, per cent": 100 * large / functions,
    }


def _is_named_by_another(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Dunders, properties, overloads and verbs of the command line have no name of their own."""
    names = []
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.append(ast.unparse(called).rpartition(".")[2])
    others = {"property", "cached_property", "overload", "setter", "verb"}
    return function.name.startswith("__") or not others.isdisjoint(names)


def _longest_chain() -> int:
    """Modules in the longest way down, late imports included."""
    below = {file.module: _inner(file) - {"profkit"} for file in FILES}
    depth: dict[str, int] = {}
    for module in TopologicalSorter(below).static_order():
        depth[module] = 1 + max((depth[m] for m in below.get(module, ())), default=0)
    return max(depth.values())


@pytest.mark.parametrize("command", IMPORTED, ids=" ".join)
def test_a_command_imports_no_more_modules(command: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from profkit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sum(m.split('.')[0] == 'profkit' for m in sys.modules), file=sys.stderr)\n"
    )
    started = [sys.executable, "-c", code, *command]
    done = subprocess.run(started, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stderr.split()[-1]) <= IMPORTED[command][0]


def test_one_name_means_one_thing_in_its_room() -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for file in FILES:
        for node in file.tree.body:
            is_class = isinstance(node, ast.ClassDef)
            if is_class or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
                places.setdefault((file.room, node.name), []).append(f"{file.name}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"each of these names stands for two things: {twice}"


def _nodes(*files: Source) -> Iterator[tuple[Source, ast.AST]]:
    return ((file, node) for file in files for node in file.nodes)


def _calls(*files: Source) -> Iterator[tuple[Source, ast.Call]]:
    return ((file, node) for file, node in _nodes(*files) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def test_no_test_reads_a_folder_of_the_repository_that_may_be_empty() -> None:
    """Folders in capitals are the repository's own; CORPUS is other people's and may be absent."""
    unchecked = []
    for file in (Source(path) for path in find_files(ROOT / "tests", "**/test_*.py")):
        for node in file.nodes:
            if not isinstance(node, ast.Attribute) or node.attr not in {"glob", "rglob"}:
                continue
            names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if any(name.isupper() for name in names - {"CORPUS"}):
                unchecked.append(f"{file.name}:{node.lineno}: tests.found.find_files")
    assert not unchecked


def test_the_formatter_lays_out_everything() -> None:
    """One kernel keeps its layout: its record's hash counts tokens, and a trailing comma is one."""
    marker = "# fmt: " + "skip"
    folders = ("profkit", "tests", "tools", "kernels", "analyses")
    files = [path for name in folders for path in find_files(ROOT / name, "**/*.py")]
    skipping = {path.name for path in files if marker in path.read_text("utf-8")}
    programs = {path.name for path in find_files(ROOT / "tests" / "programs", "*.py")}
    assert skipping - programs == {"tritonflash_online_softmax.py"}
