"""This machine  ->  what there is to measure with.

# Say what is missing on this machine, and how to install it.
profkit doctor
# Print the same as JSON.
profkit doctor --json
"""

from __future__ import annotations

from dataclasses import asdict

from profkit.cli import options

GROUP = "Work on your own kernels"
SUMMARY = "Check the GPU, driver, nvcc and ncu, and say how to fix problems."


@options.verb(GROUP, SUMMARY, forms="json", bad="something needed for measuring is missing")
def examine_machine() -> int:
    """It needs no GPU, and changes nothing."""
    from profkit.cli.output import print_blocks
    from profkit.lab.measure.variants import toolchain as examiner
    from profkit.show.views import measured

    findings = examiner.inspect_machine()
    document = examiner.DoctorDocument(findings=tuple(findings))
    print_blocks(
        measured.show_examined_machine([asdict(finding) for finding in findings]), document
    )
    missing = any(finding.status == "missing" for finding in findings)
    if missing:
        return options.BAD
    return options.DONE
