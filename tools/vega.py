"""Vega's JavaScript, out of vl-convert  ->  profkit/show/page/web/vega.js, which pages carry.

    python tools/vega.py [--licences node_modules]

vl-convert is 84 MB because it also draws; a page needs 0.9 MB of it. After another version of
vl-convert is pinned, run this; tests/show/test_page.py says when. The licences of what is in the bundle
are read from a folder into which `npm install vega vega-lite vega-embed` put the same versions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import vl_convert

WEB = Path(__file__).parents[1] / "profkit" / "show" / "page" / "web"


def bundle() -> str:
    """Vega, Vega-Lite and Embed as one script, which leaves `vegaEmbed` behind."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def licences(modules: Path) -> str:
    """The licence of each package of a folder of npm's, equal ones once."""
    texts: dict[str, list[str]] = {}
    for folder in sorted(path for path in modules.iterdir() if path.is_dir()):
        found = sorted(folder.glob("LICEN[SC]E*"))
        if found:
            texts.setdefault(found[0].read_text("utf-8").strip(), []).append(folder.name)
    parts = [f"{', '.join(names)}\n\n{text}" for text, names in texts.items()]
    head = "vega.js is made of some of these packages, by tools/vega.py."
    return "\n\n".join([head, *(f"{'-' * 72}\n{part}" for part in parts)]) + "\n"


def main() -> None:
    """Write the bundle, and the licences where they were given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--licences", type=Path, metavar="NODE_MODULES")
    asked = parser.parse_args()
    (WEB / "vega.js").write_text(bundle(), "utf-8")
    if asked.licences:
        (WEB / "vega.LICENSES.txt").write_text(licences(asked.licences), "utf-8")


if __name__ == "__main__":
    main()
