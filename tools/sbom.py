"""The packages of this environment  ->  a bill of materials, CycloneDX 1.6 as JSON.

    python tools/sbom.py [-o profkit.cdx.json]

What stands in it is what importlib.metadata says of profkit and of all that it needs, extras of
development included where they are installed: name, version, licence, and what needs what.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from profkit.files import write_text


def needed(start: str = "profkit") -> dict[str, Distribution]:
    """Name -> distribution of a package and of everything that it needs and that is installed."""
    found: dict[str, Distribution] = {}
    waiting = [start]
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # an extra that nobody installed
        waiting += _requires(found[name])
    return found


def document(packages: dict[str, Distribution]) -> dict[str, Any]:
    """The bill of materials; profkit itself is what it is about."""
    own = packages["profkit"]
    others = {name: package for name, package in sorted(packages.items()) if name != "profkit"}
    links = [
        {"ref": _purl(package), "dependsOn": _needs(package, packages)}
        for package in packages.values()
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(own), "type": "application"}},
        "components": [_component(package) for package in others.values()],
        "dependencies": sorted(links, key=lambda link: str(link["ref"])),
    }


def _component(package: Distribution) -> dict[str, Any]:
    about = package.metadata
    licence = about.get("License-Expression") or (about.get("License") or "").splitlines()[:1]
    text = licence if isinstance(licence, str) else "".join(licence)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(package),
        "name": about["Name"],
        "version": package.version,
        "purl": _purl(package),
    }
    if text:
        component["licenses"] = [{"license": {"name": text[:200]}}]
    return component


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{_normal(package.metadata['Name'])}@{package.version}"


def _needs(package: Distribution, packages: dict[str, Distribution]) -> list[str]:
    names = {_normal(name) for name in _requires(package)} & set(packages)
    return sorted(_purl(packages[name]) for name in names)


def _requires(package: Distribution) -> list[str]:
    names = (re.match(r"[\w.-]+", line) for line in package.requires or ())
    return [match[0] for match in names if match]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(words: list[str]) -> int:
    """Print or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(words)
    text = json.dumps(document(needed()), indent=1) + "\n"
    if given.output is None:
        sys.stdout.write(text)
    else:
        write_text(given.output, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
