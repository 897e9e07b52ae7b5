"""This machine  ->  what there is to measure with."""

from __future__ import annotations

from profkit.cli.options import Json
from profkit.cli.output import print_blocks, print_json
from profkit.cli.verb import Verb


def examine_machine(json: Json = False) -> None:
    """What is there to measure with, and what to do about what is not."""
    from dataclasses import asdict

    from profkit.measure import doctor as examiner
    from profkit.show.views import measured

    found = [asdict(f) for f in examiner.examine()]
    if json:
        print_json({"schema": "profkit.doctor/1", "findings": found})
    else:
        print_blocks(measured.examined(found))


VERB = Verb(
    run=examine_machine,
    examples=(
        "profkit doctor",
        "profkit doctor --json",
    ),
)
