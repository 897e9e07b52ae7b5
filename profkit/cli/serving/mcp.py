"""An agent's questions over the Model Context Protocol  ->  answers about one folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli.inputs.agent import Answers
from profkit.cli.signals import INTERRUPTED
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError, needing

if TYPE_CHECKING:
    from collections.abc import Callable

ABOUT = (
    "Diagnoses NVIDIA Nsight Compute reports of CUDA kernels. Begin with diagnose; explain says what "
    "a rule means; lines says where; compare says whether a change helped; triage says what to do "
    "first about a whole program that was recorded."
)
Folder = Annotated[
    Path,
    typer.Option("--root", metavar="DIR", help="Only what lies in here can be read."),
]


def serve_agents(root: Folder = Path()) -> None:
    """Answer an agent over MCP, of reports in one folder."""
    server = server_of(root)
    _own_stdout()
    try:
        server.run("stdio")
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # a thread of the library waits for a line of stdin, for ever


def _own_stdout() -> None:
    """Keep stdout for the protocol: what a library or a child prints there goes to stderr."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = protocol


def server_of(root: Path) -> Any:
    """The server with its six tools, none of which runs a command or writes a file.

    Raises:
        ProfkitError: The extra is not installed, or the folder is not there.
    """
    with needing("mcp", "profkit mcp"):
        from mcp.server.mcpserver import Image, MCPServer
    if not root.is_dir():
        raise ProfkitError(f"--root {root}: no such folder", "name the folder with the reports")
    answers = Answers(root.resolve())
    server = MCPServer("profkit", instructions=ABOUT)
    tools = (answers.diagnose, answers.compare, answers.explain, answers.lines, answers.triage)
    for answer in tools:
        server.tool(structured_output=False)(answer)

    def roofline(reports: str) -> Any:
        return Image(data=answers.roofline(reports), format="png")

    described: Callable[..., Any] = server.tool(
        description=answers.roofline.__doc__, structured_output=False
    )
    described(roofline)
    return server


VERB = Verb(
    run=serve_agents,
    examples=(
        "profkit mcp                                   # an agent starts this by itself",
        "profkit mcp --root runs/",
    ),
)
