"""list, doctor, build, check, bench, profile: parse, call one function, print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Kernels = Annotated[
    Path | None, typer.Option("--kernels", help="The folder of problems.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file to the app."""
    app.command("list")(list_)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def list_(kernels: Kernels = None, as_json: AsJson = False) -> None:
    """The variants in ladder order."""
    from profkit.measure import variants

    found = variants.find(variants.kernels_dir(kernels))
    if as_json:
        _print_json([{"variant": v.id, "problem": v.problem, "title": v.title} for v in found])
        return
    table = Table("variant", "after", "title", box=None)
    for v in found:
        table.add_row(escape(v.id), escape(v.after or "-"), escape(v.title))
    Console().print(table)
