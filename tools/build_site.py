"""docs/, the rules, metrics, verbs, schemas and probes  ->  build/site/html, which needs no network.

    python tools/build_site.py [--quick]

What can be made from the code is: the pages of docs/reference and docs/gallery exist only in build/site.
With --quick notebooks do not run and probes have no pictures.
"""

from __future__ import annotations

import argparse
import base64
import inspect
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from matplotlib.axes import Axes
from nbclient import NotebookClient
from sphinx.cmd.build import main as sphinx

import profkit as pk
from profkit.cli.app import import_verbs, read_verb_summaries_by_group
from profkit.diagnosis.pages import read_probe_pairs
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.files import write_text
from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE, FAMILIES
from profkit.show.plots.bars import ISSUING, STATE_LOOKS
from profkit.show.plots.base import get_figure
from profkit.show.text import words
from profkit.show.text.blocks import (
    Block,
    Code,
    Grid,
    Heading,
    Paragraph,
    TextLine,
    TextSpan,
    render_markdown,
)
from profkit.show.text.escape import escape_html, escape_markdown
from profkit.show.views.explain import explain

sys.path.insert(0, str(Path(__file__).parent))
import schemas
import verdicts

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "site"
SOURCES, HTML = BUILD / "source", BUILD / "html"
PICTURES = ("artifacts/tune/v3.B/history.png",)  # that pages of docs/ show
# What a page of docs/ links to in the repository -> the page of the site that has it.
PAGES = {
    "profkit/REFERENCE.md": "reference/rules/index.md",
    "profkit/schemas": "reference/schemas.md",
}
REFERENCE = ("rules/index", "words", "metrics", "verbs", "api", "schemas")
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<to>(?!https?:)[^)#\s]+)(?P<part>#[^)]*)?\)"
)


def rules() -> Iterator[tuple[str, str]]:
    """A page a rule, and the list of them."""
    listed = [Grid(("rule", "fires when"), tuple((TextSpan(r.id, "code"), r.title) for r in ALL))]
    toc = "\n".join(rule.id for rule in ALL)
    index = render_markdown([Heading("Rules", 0), *listed])
    yield "rules/index.md", f"{index}\n:::{{toctree}}\n:maxdepth: 1\n\n{toc}\n:::\n"
    for rule in ALL:
        yield f"rules/{rule.id}.md", page(rule.id)


def page(name: str) -> str:
    """An explanation as a page of its own: headings one level up."""
    return _raised(explain(name).blocks())


def _raised(blocks: Iterator[Block]) -> str:
    return render_markdown(
        Heading(block.text, block.level - 1) if isinstance(block, Heading) else block
        for block in blocks
    )


def verdict_words() -> Iterator[tuple[str, str]]:
    """Bounds and limiters on one page."""
    every = (*words.BOUNDS, *words.UNITS, *words.WAITS, *words.SHAPES)
    pages = [explain(word).blocks() for word in every if word.replace("_", "-") not in BY_ID]
    parts = [render_markdown(blocks) for blocks in pages]
    yield "words.md", "\n".join(["# Words of the verdict\n", *parts])


def metrics() -> Iterator[tuple[str, str]]:
    """Every metric, a table for each family."""
    blocks: list[Block] = [Heading("Metrics", 0)]
    blocks.append(
        Paragraph("Columns of the frame: SI units, shares from 0 to 1, NaN not collected.")
    )
    for family in dict.fromkeys(FAMILIES.values()):
        mine = [m for m in CATALOGUE.values() if FAMILIES[m.name] == family]
        some = dict(explain(mine[0].name).parts)
        blocks += [Heading(family), Paragraph(some["What happens in the hardware"][0])]
        rows = tuple((TextSpan(m.name, "code"), m.unit, m.meaning, m.section) for m in mine)
        blocks.append(Grid(("metric", "unit", "meaning", "ncu section"), rows))
    yield "metrics.md", render_markdown(blocks)


def verbs() -> Iterator[tuple[str, str]]:
    """The help of every verb, as the program prints it."""
    blocks: list[Block] = [Heading("Verbs", 0)]
    parsers = import_verbs()
    for group, listed in read_verb_summaries_by_group().items():
        blocks.append(Heading(group))
        for name, _ in listed:
            with parsers[name].make_context(name, ["--help"], resilient_parsing=True) as context:
                blocks += [Heading(name, 2), Code(parsers[name].get_help(context), "text")]
    yield "verbs.md", render_markdown(blocks)


def api() -> Iterator[tuple[str, str]]:
    """The public names, with their arguments and docstrings."""
    blocks: list[Block] = [Heading("API", 0), Code("import profkit as pk", "python")]
    for name in sorted(pk.__all__):
        value = getattr(pk, name)
        if inspect.ismodule(value):
            for plot in value.__all__:
                blocks += list(_documented(f"plots.{plot}", getattr(value, plot)))
        else:
            blocks += list(_documented(name, value))
    yield "api.md", render_markdown(blocks)


def _documented(name: str, value: Any) -> Iterator[Block]:
    yield Heading(name)
    signature = str(inspect.signature(value)).replace("'", "")
    text = inspect.cleandoc(value.__doc__ or "")
    yield Code(f"pk.{name}{signature}\n\n{text}", "text")


def schema_pages() -> Iterator[tuple[str, str]]:
    """The JSON Schema of every document that a verb prints with --json, or that stands in a file."""
    blocks: list[Block] = [Heading("JSON", 0)]
    text = (
        "Keys are added, never renamed within a version. No NaN and no Infinity gets into a document. "
        "The files are in profkit/schemas, and in the installed package."
    )
    blocks.append(Paragraph(text))
    for file in sorted(schemas.FOLDER.glob("*.json")):
        document = json.loads(file.read_text("utf-8"))
        blocks += [Heading(document["title"]), Paragraph(document["description"])]
        blocks.append(Code(json.dumps(document, indent=1), "json"))
    yield "schemas.md", render_markdown(blocks)


def gallery(pictures: Path | None) -> Iterator[tuple[str, str]]:
    """A card a probe: its picture, code, verdict and measured gain."""
    known = verdicts.truths()
    paths = known.probes(verdicts.PROBES)
    rows = {row.probe: row for row in verdicts.rows()}
    drawn = _drawn(pictures) if pictures else {}
    cards = {
        name: _card(name, row, paths[name], drawn.get(name)) for name, row in sorted(rows.items())
    }
    toc = "\n".join(cards)
    areas = sorted({path.parent.name for path in paths.values()})
    index = ["# Probes", "", _ABOUT, "", explain_colours(), ""]
    for area in areas:
        mine = [card for name, card in cards.items() if paths[name].parent.name == area]
        index += [f"## {area}", "", '<div class="cards">', *mine, "</div>", ""]
    yield "gallery/index.md", "\n".join([*index, ":::{toctree}\n:hidden:\n", toc, ":::", ""])
    for name, row in rows.items():
        yield f"gallery/{name}.md", _probe(name, row, paths[name], drawn.get(name))


_ABOUT = (
    "Small kernels whose bottleneck is known by construction, each recorded on an H200 and most with "
    "a copy that lacks the cause. They hold the rules to the truth: `python tools/score.py verdicts`. "
    "A card's bars are what the warps wait for: above with the cause, below without."
)


@dataclass(frozen=True)
class Picture:
    """What the warps of a probe wait for.

    Attributes:
        name: Of its file beside the probe's page.
        bars: The bars alone for the card, as a data: address, under 2 kB.
    """

    name: str
    bars: str


def explain_colours() -> str:
    """Return the legend of the cards' bars: a swatch and a name for each state of a warp."""
    looks = {"issuing": (ISSUING, ""), **STATE_LOOKS}
    keys = []
    for state, (colour, hatch) in looks.items():
        kind = "key hatched" if hatch else "key"
        swatch = f'<span class="{kind}" style="background-color:{colour}"></span>'
        keys.append(f"<li>{swatch} {escape_html(state.replace('_', ' '))}</li>")
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _title(path: Path) -> str:
    return path.read_text("utf-8").splitlines()[0].removeprefix("/* ").rstrip(".")


def _card(name: str, row: verdicts.Row, path: Path, picture: Picture | None) -> str:
    gain = (
        f"{figures.format_speedup(row.gain)} faster without it"
        if row.gain
        else "no copy without it"
    )
    bars = (
        f'<img src="{picture.bars}" alt="{escape_html(_alt(name))}" loading="lazy">'
        if picture
        else ""
    )
    return (
        f'<div class="card"><h3><a href="{escape_html(name)}.html">{escape_html(name)}</a></h3>'
        f"{bars}<p>{escape_html(_title(path))}</p>"
        f"<p>{escape_html(_said(row))}: {escape_html(str(row.said[2]))}</p>"
        f'<p class="gain">{escape_html(gain)}</p></div>'
    )


def _alt(name: str) -> str:
    return f"What the warps of {name} wait for, with the cause and without"


def _said(row: verdicts.Row) -> str:
    return ": ".join(filter(None, row.said[:2]))


def _probe(name: str, row: verdicts.Row, path: Path, picture: Picture | None) -> str:
    rule = str(row.said[2])
    pair = next((p for p in read_probe_pairs(row.cause) if p.probe == name), None)
    blocks: list[Block] = [Heading(name, 0), Paragraph(_title(path)), Heading("Verdict")]
    blocks.append(TextLine((f"{rule}: ", _said(row)), "says"))
    blocks.append(TextLine(f"{row.cause}: {row.bound}: {row.limiter}", "is"))
    if pair:
        text = f"{figures.format_speedup(pair.gain)} faster: {pair.relieves}"
        blocks.append(TextLine(text, "measured without it"))
    if row.expect:
        near = (
            f"{figures.format_speedup(row.expect.low)} to {figures.format_speedup(row.expect.high)}"
        )
        blocks.append(TextLine(f"{figures.format_speedup(row.expect.gain)} ({near})", "expected"))
    parts = [render_markdown(blocks)]
    if picture:
        parts.append(f"![{escape_markdown(_alt(name))}]({picture.name})\n")
    parts.append(f"What it means: [{rule}](../reference/rules/{rule}.md).\n\n## Code\n")
    return "\n".join([*parts, render_markdown([Code(path.read_text("utf-8"), "cuda")])])


def _drawn(folder: Path) -> dict[str, Picture]:
    """Probe -> the picture of what its warps wait for, beside its twin."""
    runs = pk.load(str(verdicts.RECORDED / "probes-*.ncu-rep*"))
    found = {}
    for name, launches in runs.groupby("variant"):
        both = launches.drop_duplicates(["case"], keep="last").sort_values("case")
        if both["stall_selected"].notna().any():
            axes = pk.plots.stalls(both)
            pk.plots.save(axes, folder / f"{name}.png")
            found[str(name)] = Picture(f"{name}.png", _bars(axes))
    return found


def _bars(axes: Axes) -> str:
    """The bars of a picture without its words, which at a card's width nobody could read."""
    axes.set_axis_off()
    for text in (*axes.texts, *filter(None, [axes.get_legend()])):
        text.remove()
    figure = get_figure(axes)
    figure.draw_without_rendering()  # lays out anew what is left
    box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
    file = io.BytesIO()
    figure.savefig(file, dpi=50, bbox_inches=box, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def written(into: Path, *, pictures: bool, probes: bool = True) -> None:
    """All sources of the site.

    Args:
        into: The folder, which is made anew.
        pictures: Draw what the probes wait for.
        probes: Write the gallery; else a page that says where it is.
    """
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(ROOT / "docs", into)
    shutil.copytree(ROOT / "notebooks", into / "notebooks", ignore=shutil.ignore_patterns(".*"))
    for picture in PICTURES:
        (into / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / picture, into / picture)
    for file in sorted(into.rglob("*.md")):
        place = file.relative_to(into)
        text = lead_to_site(file.read_text("utf-8"), place.parent)
        if place.name in ("index.md", "notebooks.md"):
            text = add_contents(text)
        if place.name == "index.md":
            text += list_made()
        write_text(file, text)
    drawn = into / "gallery"
    drawn.mkdir()
    made: Mapping[str, Iterator[tuple[str, str]]] = {
        "reference": (
            item
            for part in (rules, verdict_words, metrics, verbs, api, schema_pages)
            for item in part()
        ),
        "": gallery(drawn if pictures else None) if probes else iter([_ELSEWHERE]),
    }
    for folder, files in made.items():
        for name, text in files:
            file = into / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, text)


def lead_to_site(text: str, folder: Path) -> str:
    """Return a page of docs/ with its links as the site has them; `folder`: the page's, below docs/.

    On GitHub a link leads to a file of the repository. What the site does not have becomes plain text.
    """

    def replace(match: re.Match[str]) -> str:
        target = os.path.normpath(Path("docs") / folder / match["to"])
        if target.startswith("docs/") and target != "docs/decisions/README.md":
            return match[0]
        page = PAGES.get(target)
        if page is None and (target.startswith("notebooks/") or target in PICTURES):
            page = target
        if page is None:
            return match["text"]
        place = os.path.relpath(page, folder)
        part = match["part"] or ""
        return f"{match['image']}[{match['text']}]({place}{part})"

    return _LINK.sub(replace, text)


def add_contents(text: str) -> str:
    """Return a page whose lists of links are the contents of the sidebar too, a part per heading."""
    parts = re.split(r"^(?=#+ )", text, flags=re.M)
    out = []
    for part in parts:
        title = part.partition("\n")[0].lstrip("# ")
        listed = re.findall(r"^- \[[^\]]*\]\(([^)#]+)\.(?:md|ipynb)\)", part, flags=re.M)
        own = [page for page in listed if not page.startswith("reference/")]
        out.append(part)
        if own:
            out.append(_hidden(title, own))
    return "".join(out)


def _hidden(title: str, pages: Sequence[str], *, is_glob: bool = False) -> str:
    options = f":hidden:\n:maxdepth: 1\n:caption: {title}\n" + ":glob:\n" * is_glob
    return f"\n:::{{toctree}}\n{options}\n{chr(10).join(pages)}\n:::\n\n"


def list_made() -> str:
    """Return the parts of the contents that exist only in the site."""
    reference = _hidden("Reference", [f"reference/{name}" for name in REFERENCE])
    probes = (
        "## Probes\n\n[Small kernels whose bottleneck is known](gallery/index.md), with pictures.\n"
    )
    shown = _hidden("Probes", ["gallery/index"])
    return f"\n{reference}\n{probes}{shown}" + _hidden(
        "Decisions", ["decisions/[0-9]*"], is_glob=True
    )


_ELSEWHERE = ("gallery/index.md", "# Probes\n\n`make site` writes a card for each.\n")


def built(source: Path, html_: Path, *settings: str) -> int:
    """Run Sphinx, with warnings as errors; its exit status.

    Args:
        source: The sources.
        html_: Where the pages go.
        settings: Of conf.py, NAME=VALUE, that are others this time.
    """
    options = ["-q", "-W", "--keep-going", "-b", "html"]
    for setting in settings:
        options += ["-D", setting]
    return sphinx([*options, "-d", str(html_.parent / "doctrees"), str(source), str(html_)])


def run_notebooks(into: Path) -> None:
    """Run each notebook where it stands, and write it with its outputs."""
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        where = {"metadata": {"path": str(file.parent)}}
        NotebookClient(notebook, timeout=300, resources=where).execute()
        nbformat.write(notebook, into / file.name)


def main() -> int:
    """Build the site; warnings are errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no notebooks run, no pictures")
    asked = parser.parse_args()
    written(SOURCES, pictures=not asked.quick)
    if not asked.quick:
        run_notebooks(SOURCES / "notebooks")
    status = built(SOURCES, HTML)
    if status == 0:
        print(f"{HTML / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
