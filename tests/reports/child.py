"""Tests that open reports by the hundred run in a child: ncu_report gives back nothing that it took."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import ncu_report  # noqa: F401 - once, for all children
import pandas  # noqa: F401

Given = ParamSpec("Given")


def in_a_child(test: Callable[Given, None]) -> Callable[Given, None]:
    """Call a test in a fork of this process; what it raises there fails here, in its words."""

    @wraps(test)
    def forked(*args: Given.args, **kwargs: Given.kwargs) -> None:
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            said = ""
            try:
                test(*args, **kwargs)
            except BaseException:  # noqa: BLE001 - the parent raises it
                said = traceback.format_exc()
            finally:
                with open(theirs, "wb") as pipe:
                    pipe.write(said.encode())
                os._exit(bool(said))
        os.close(theirs)
        with open(ours, "rb") as pipe:
            said = pipe.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status == 0, said or f"the child ended with {status}"

    return forked
