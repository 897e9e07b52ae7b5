"""Lines of the Model Context Protocol  ->  calls of the tools, which agents.py answers.

A line that the library could not read, and a call with wrong arguments, are answered here.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import profkit
from profkit.cli.agents import (
    Answers,
    ToolAnswer,
    describe_error_for_agent,
    escape_and_shorten_text,
)
from profkit.errors import ProfkitError, require_package
from profkit.files import (
    is_folder,
    resolve_path,
)

if TYPE_CHECKING:
    from profkit.units import FileDescriptor, McpServer


ABOUT = (
    "Diagnoses NVIDIA Nsight Compute reports of CUDA kernels. Begin with diagnose; explain says what "
    "a rule means; lines says where; compare says whether a change helped; triage says what to do "
    "first about a whole program that was recorded."
)


def reserve_stdout_for_protocol() -> None:
    """Keep stdout for the protocol: what a library or a child prints there goes to stderr."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = protocol


LINE_MOST = 1 << 20  # bytes of a question: the longest that means something is a list of paths


def make_filtered_request_stream(handle: FileDescriptor, answers: TextIO) -> TextIO:
    """Return a stream of the lines of a descriptor that the library can read.

    Of a line that is not JSON, that has what is no character, or that is longer than any question, it
    would say nothing, and an agent would wait for ever: such a line is answered here, and goes no
    further.
    """
    reading, writing = os.pipe()

    def forward_lines() -> None:
        with os.fdopen(writing, "wb") as checked, contextlib.suppress(OSError):
            for line in _iterate_limited_lines(handle):
                refusal = _answer_invalid_line(line)
                if refusal is None:
                    checked.write(line + b"\n")
                    checked.flush()
                elif line.strip():
                    answers.write(dumps(refusal) + "\n")
                    answers.flush()

    threading.Thread(target=forward_lines, daemon=True).start()
    return io.TextIOWrapper(os.fdopen(reading, "rb"), encoding="utf-8")


def _iterate_limited_lines(handle: FileDescriptor) -> Iterator[bytes]:
    """Yield the lines of a descriptor; of one that is too long, a little more than is taken."""
    kept = b""
    while chunk := os.read(handle, 1 << 16):
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield kept + line
            kept = b""
        if len(kept) <= LINE_MOST:
            kept += rest
    yield kept


def _answer_invalid_line(line: bytes) -> dict[str, Any] | None:
    """Return the answer to a line that the library would not answer; None for any other."""
    number: object = None
    why = f"a line of more than {LINE_MOST >> 20} MB: name a folder or a pattern, not every file"
    if len(line) <= LINE_MOST:
        try:
            question = loads(line)
            number = question.get("id") if isinstance(question, dict) else None
            dumps(question, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            why = f"not JSON in UTF-8: {error}"
        else:
            return None
    number = number if isinstance(number, int | str) else None
    return {
        "jsonrpc": "2.0",
        "id": number,
        "error": {"code": -32700, "message": escape_and_shorten_text(why)},
    }


def make_mcp_server(allowed_folder: Path) -> McpServer:
    """Return the server with its six tools, none of which runs a command or writes a file."""
    with require_package("mcp", "profkit mcp"):
        from mcp.server.mcpserver import MCPServer
    if not is_folder(allowed_folder):
        raise ProfkitError(
            f"--root {allowed_folder}: no such folder", "name the folder with the reports"
        )
    from mcp.types import ToolAnnotations

    answers = Answers(resolve_path(allowed_folder))
    server = MCPServer("profkit", instructions=ABOUT, version=profkit.__version__)
    tools = (answers.diagnose, answers.compare, answers.explain, answers.lines, answers.triage)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for ask in (*tools, answers.roofline):
        summary, _ = split_tool_docstring(ask.__doc__ or "")
        server.tool(description=summary, annotations=reads, structured_output=False)(
            _make_mcp_tool(ask)
        )
    _reword_argument_errors(server)
    return server


def _reword_argument_errors(server: McpServer) -> None:
    """Let a server refuse a call with wrong arguments in words of ours, not in its library's."""
    from mcp.server.mcpserver.exceptions import ToolError
    from pydantic import ValidationError

    call_tool = server.call_tool

    async def call(name: str, arguments: dict[str, Any], *context: Any) -> Any:
        try:
            return await call_tool(name, arguments, *context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            tools = {tool.name: tool for tool in await server.list_tools()}
            known = list(tools[name].input_schema["properties"])
            said = say_wrong_arguments(name, error.__cause__.errors(), known)
            raise ToolError(said) from error

    server.call_tool = call


def say_wrong_arguments(
    tool: str, errors: Sequence[Mapping[str, Any]], known_arguments: Sequence[str]
) -> str:
    """Return what is wrong with the arguments of a call, and which there are."""
    wrong = set()
    for error in errors:
        argument = ".".join(str(part) for part in error["loc"])
        wrong.add(f"{argument}: {error['msg'].lower()}")
    problems = "; ".join(sorted(wrong))
    return escape_and_shorten_text(f"{tool}: {problems}\narguments: {', '.join(known_arguments)}")


def split_tool_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return what a tool answers, and what each of its arguments is, in a line each."""
    summary, _, listed = inspect.cleandoc(text).partition("Args:")
    arguments: dict[str, list[str]] = {}
    name = ""
    for line in inspect.cleandoc(listed).splitlines():
        begins, colon, words = line.partition(": ")
        if colon and begins.isidentifier():
            name = begins
            arguments[name] = [words.strip()]
        elif name:
            arguments[name].append(line.strip())
    return " ".join(summary.split()), {name: " ".join(lines) for name, lines in arguments.items()}


def _make_mcp_tool(ask: Callable[..., ToolAnswer]) -> Callable[..., Any]:
    """Return a question as the library wants it: its text with the data, a picture, or a refusal."""
    from mcp.server.mcpserver import Image
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, ContentBlock, TextContent
    from pydantic import Field

    @wraps(ask)
    def answer(**given: Any) -> Any:
        try:
            told = ask(**given)
        except ProfkitError as error:
            raise ToolError(describe_error_for_agent(error)) from error
        except (OSError, ValueError, RecursionError, MemoryError) as error:  # the server goes on
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ToolError(escape_and_shorten_text(f"{ask.__name__}: {why}")) from error
        content: list[ContentBlock] = [TextContent(type="text", text=told.text)]
        if told.picture:
            content.append(Image(data=told.picture, format="png").to_image_content())
        return CallToolResult(content=content, structured_content=told.content)

    _, described = split_tool_docstring(ask.__doc__ or "")
    signature = inspect.signature(ask, eval_str=True)
    parameters = []
    for name, parameter in signature.parameters.items():
        field = Field(description=described[name])
        parameters.append(parameter.replace(annotation=Annotated[parameter.annotation, field]))
    vars(answer)["__signature__"] = signature.replace(parameters=parameters)
    return answer
