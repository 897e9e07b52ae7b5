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
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<to>(?!https?:|#)[^)\s]+)\)")
_COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)


def describe(readme: str, repository: str) -> str:
    """Return README.md as a page that does not lie in the repository."""

    def replace(match: re.Match[str]) -> str:
        if not repository:
            return "" if match["image"] else match["text"]
        kind = "raw" if match["image"] else "blob"
        address = f"{repository.rstrip('/')}/{kind}/{BRANCH}/{match['to']}"
        return f"{match['image']}[{match['text']}]({address})"

    text = _LINK.sub(replace, _COMMENT.sub("", readme))
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
