"""A module of profkit  ->  the command of an interpreter that runs it and looks nowhere else.

`python -c` and `python -m` look for modules in the current folder first, and PYTHON* variables say
more folders, and more. A folder that somebody sent may hold a json.py. So an interpreter that profkit
starts for itself is isolated (-I): it sees neither. Where this process found its packages is
handed to it as data, without the current folder.

This file is both sides: it makes the command, and it is what the command runs.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from runpy import run_module

# Where the profkit of this process lies: a folder, or a zip file of all.
_PLACE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def make_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of profkit as `python -m MODULE ARGUMENTS` would."""
    return [*_make_isolated_interpreter_command(), encode_import_folders(), module, *arguments]


def make_command_from_file(import_folders_file: str, module: str, *arguments: str) -> list[str]:
    """Return the same command where what encode_import_folders() says is in a file."""
    return [*_make_isolated_interpreter_command(), import_folders_file, module, *arguments]


def encode_import_folders() -> str:
    """Return, as JSON, where an interpreter finds what this process finds."""
    return json.dumps({"profkit": _PLACE, "path": list_import_folders_elsewhere()})


def list_import_folders_elsewhere() -> list[str]:
    """Return the folders of sys.path without the current one, the standard library's first.

    Where profkit itself lies in the current folder, in a clone say, that folder comes last: its code
    is being run already.
    """
    standard = []
    others = []
    last = []
    for entry in sys.path:
        if is_current_folder(entry):
            if is_current_folder(_PLACE):
                last = [_PLACE]
        elif os.path.abspath(entry) in _list_standard_library():
            standard.append(entry)
        else:
            others.append(os.path.abspath(entry))
    return [*standard, *others, *last]


def is_current_folder(entry: str) -> bool:
    """Return whether an entry of sys.path is the current folder, under whatever name."""
    if entry in ("", "."):
        return True
    try:
        return os.path.samefile(entry, ".")
    except OSError:  # one of them is no more
        return False


def _list_standard_library() -> tuple[str, ...]:
    folder = os.path.dirname(os.path.abspath(os.__file__))
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    zipped = os.path.join(os.path.dirname(folder), f"python{version}.zip")
    return zipped, folder, os.path.join(folder, "lib-dynload")


def _make_isolated_interpreter_command() -> list[str]:
    """Return how an isolated interpreter is started with this file."""
    # -I hides PYTHONUTF8 and PYTHONDONTWRITEBYTECODE too; names of files have to be read as here.
    settings = ["-I", "-X", f"utf8={sys.flags.utf8_mode}"]
    if sys.dont_write_bytecode:
        settings.append("-B")
    if os.path.isfile(__file__):
        return [sys.executable, *settings, os.path.abspath(__file__)]
    source = __loader__.get_source(__name__)  # type: ignore[name-defined]  # of a zip file
    return [sys.executable, *settings, "-c", source]


def _run_module_isolated() -> None:
    """Run what the command line of make_command says, in this process."""
    handed, module, *arguments = sys.argv[1:]
    if not handed.startswith("{"):
        with open(handed, encoding="utf-8") as file:
            handed = file.read()
    packages = json.loads(handed)
    sys.path[:] = packages["path"]
    sys.argv[:] = ["-m", *arguments]
    spec = PathFinder.find_spec("profkit", [packages["profkit"]])
    if spec is None or spec.loader is None:
        sys.exit(f"profkit: is no longer in {packages['profkit']}")
    package = module_from_spec(spec)
    sys.modules["profkit"] = package
    spec.loader.exec_module(package)
    run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run_module_isolated()
