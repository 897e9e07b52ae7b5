"""Ctrl-C and a polite kill are never lost."""

import subprocess
import sys

import pytest

CODE = """
import os, signal, sys, time
from profkit.cli.signals import stop_on_term

class Cleaned:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        for _ in range(1000):
            pass

stop_on_term()
try:
    Cleaned()
    time.sleep(20)
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_destructor_still_stops(name: str) -> None:
    command = [sys.executable, "-c", CODE.replace("{name}", name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert (done.stdout, done.stderr) == ("stopped\n", "")
