"""README.md  ->  the package's long description, in which every link leads somewhere.

hatchling calls it (pyproject.toml, [tool.hatch.metadata.hooks.custom]). A package index has no files
of the repository, so links and pictures need its address, which is given once: as Repository in
[project.urls]. As long as it is not there, links become plain text and pictures are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # the tests need only the text
    MetadataHookInterface = object

BRANCH = "main"
# What README.md says above its commands, and what it says where there is no checkout.
CHECKOUT = (
    "In a clone, with Python 3.11 or newer and make, `make demo` shows the example kernels' ladder and "
    "page, and `make test` runs all tests; each sets up what it needs, without a GPU. To install:"
)
REQUIRES = "With Python 3.11 or newer:"
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<to>(?!https?:|#)[^)\s]+)\)")
# Links that are all there is between brackets, as in "six notebooks ([which](docs/notebooks.md))".
_ASIDE = re.compile(r" \((?:\[[^\]]*\]\((?!https?:|#)[^)\s]+\)(?:, )?)+\)")
_FROM_HERE = 'pip install ".['  # of a checkout
_COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)


def describe(readme: str, repository: str) -> str:
    """Return README.md as a page that does not lie in the repository.

    Raises:
        ValueError: It does not say how to install from a checkout where it did.
    """
    if CHECKOUT not in readme or _FROM_HERE not in readme:
        raise ValueError(f"README.md lacks {CHECKOUT!r} or {_FROM_HERE!r}")

    def replace(match: re.Match[str]) -> str:
        if not repository:
            return "" if match["image"] else match["text"]
        kind = "raw" if match["image"] else "blob"
        address = f"{repository.rstrip('/')}/{kind}/{BRANCH}/{match['to']}"
        return f"{match['image']}[{match['text']}]({address})"

    text = _COMMENT.sub("", readme)
    if not repository:
        text = _ASIDE.sub("", text)
    text = _LINK.sub(replace, text).replace(_FROM_HERE, 'pip install "profkit[')
    text = text.replace(CHECKOUT, REQUIRES)
    return re.sub(r"\n{3,}", "\n\n", text)


class LongDescription(MetadataHookInterface):
    """What hatchling asks for the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description to the metadata."""
        readme = (Path(self.root) / "README.md").read_text("utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": describe(readme, repository),
        }
