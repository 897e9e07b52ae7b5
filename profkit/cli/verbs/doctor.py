"""This machine  ->  what there is to measure with.

profkit doctor
profkit doctor --json
"""

from __future__ import annotations

from dataclasses import asdict

from profkit.cli import options
from profkit.cli.output import print_blocks
from profkit.measure.variants import toolchain as examiner
from profkit.show.views import measured


@options.verb("For agents and CI", forms="json", bad="something is missing that measuring needs")
def examine_machine() -> int:
    """What is there to measure with, and what to do about what is not."""
    findings = [asdict(f) for f in examiner.examine()]
    print_blocks(measured.examined(findings), {"schema": "profkit.doctor/1", "findings": findings})
    missing = any(finding["status"] == "missing" for finding in findings)
    return options.BAD if missing else options.DONE
