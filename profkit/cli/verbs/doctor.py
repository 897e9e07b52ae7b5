"""This machine  ->  what there is to measure with."""

from __future__ import annotations

import typer

from profkit.cli import options
from profkit.cli.output import print_blocks, print_json


def examine_machine(json: options.Json = False) -> None:
    """What is there to measure with, and what to do about what is not."""
    from dataclasses import asdict

    from profkit.measure import doctor as examiner
    from profkit.show.views import measured

    findings = [asdict(f) for f in examiner.examine()]
    if json:
        print_json({"schema": "profkit.doctor/1", "findings": findings})
    else:
        print_blocks(measured.examined(findings))
    if any(finding["status"] == "missing" for finding in findings):
        raise typer.Exit(options.BAD)


VERB = options.Verb(
    run=examine_machine,
    group="For agents and CI",
    bad="something is missing that measuring needs",
    examples=(
        "profkit doctor",
        "profkit doctor --json",
    ),
)
