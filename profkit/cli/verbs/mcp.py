"""An agent's questions over the Model Context Protocol  ->  answers about one folder."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from profkit.cli import options
from profkit.cli.agent import Answers, Told, told_error
from profkit.cli.options import flag
from profkit.cli.signals import INTERRUPTED
from profkit.errors import ProfkitError, needing

ABOUT = (
    "Diagnoses NVIDIA Nsight Compute reports of CUDA kernels. Begin with diagnose; explain says what "
    "a rule means; lines says where; compare says whether a change helped; triage says what to do "
    "first about a whole program that was recorded."
)


def serve_agents(
    root: Path = flag("--root DIR", "Only what is in here can be read.", Path()),
) -> int:
    """Answer an agent over MCP, of reports in one folder."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        os.environ.pop(name, None)  # whatever the agent's terminal can, an answer is plain text
    # Of a wrong type the sentence is enough; and no log lines of the library's, with rich.
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    server = server_of(root)
    _own_stdout()
    try:
        server.run("stdio")
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # a thread of the library waits for a line of stdin, for ever
    return options.DONE


def _own_stdout() -> None:
    """Keep stdout for the protocol: what a library or a child prints there goes to stderr."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = protocol


def server_of(root: Path) -> Any:
    """The server with its six tools, none of which runs a command or writes a file."""
    with needing("mcp", "profkit mcp"):
        from mcp.server.mcpserver import MCPServer
    if not root.is_dir():
        raise ProfkitError(f"--root {root}: no such folder", "name the folder with the reports")
    answers = Answers(root.resolve())
    server = MCPServer("profkit", instructions=ABOUT)
    tools = (answers.diagnose, answers.compare, answers.explain, answers.lines, answers.triage)
    for ask in (*tools, answers.roofline):
        server.tool(structured_output=False)(_tool(ask))
    return server


def _tool(ask: Callable[..., Told | bytes]) -> Callable[..., Any]:
    """A question as the library wants it: text with the data beside it, a picture, or a refusal."""
    from mcp.server.mcpserver import Image
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, TextContent

    @wraps(ask)
    def answer(**given: Any) -> Any:
        try:
            told = ask(**given)
        except ProfkitError as error:
            raise ToolError(told_error(error)) from error
        if isinstance(told, bytes):
            return Image(data=told, format="png")
        text = TextContent(type="text", text=told.text)
        return CallToolResult(content=[text], structured_content=told.content)

    return answer


VERB = options.Verb(
    run=serve_agents,
    group="For agents and CI",
    examples=(
        "profkit mcp                                   # an agent starts this by itself",
        "profkit mcp --root runs/",
    ),
)
