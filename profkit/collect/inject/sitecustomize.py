"""Python starts in a captured or recorded program  ->  the machine's own file runs, then our hooks."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_hidden_sitecustomize() -> None:
    """Run the sitecustomize that this one hides."""
    elsewhere = [p for p in sys.path if os.path.abspath(p) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_hidden_sitecustomize()
if os.environ.get("PROFKIT_CAPTURE"):
    importlib.import_module("profkit_capture_hook").install_capture()
if os.environ.get("PROFKIT_TIMELINE"):
    importlib.import_module("profkit_recorder_hook").install_recorder()
