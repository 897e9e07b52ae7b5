"""The folder of problems  ->  its variants in ladder order.

# List all variants, or those of one problem.
profkit list
profkit list --problem attention
# Use folders of your own, and print JSON.
profkit list --kernels mine --build-dir build --artifacts runs --json
"""

from __future__ import annotations

from dataclasses import asdict

import typer

from profkit.cli import options

GROUP = "Work on your own kernels"
SUMMARY = "List variants, and which are built, recorded or stale."


@options.verb(GROUP, SUMMARY, forms="json")
def list_variants(
    problem: str | None = typer.Option(
        None, metavar="NAME", help="Choose one problem: a folder of --kernels."
    ),
    kernels: options.Kernels = None,
    build_dir: options.BuildDir = None,
    artifacts: options.RecordsDir = None,
) -> int:
    """A record is stale when the code of its variant has changed since it was measured."""
    from profkit.cli.output import print_blocks, print_errors
    from profkit.lab.measure import ladder, targets
    from profkit.show.views import measured

    listed, problems = ladder.list_variant_states(
        targets.LabFolders(kernels, build_dir, artifacts), problem
    )
    rows = [asdict(variant) for variant in listed]
    print_blocks(measured.show_variants(rows), ladder.ListDocument(variants=tuple(listed)))
    print_errors(problems)
    if problems:
        return options.COULD_NOT
    return options.DONE
