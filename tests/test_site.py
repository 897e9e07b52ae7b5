"""The site builds without a warning and needs no network."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from profkit.diagnosis.rules import ALL
from profkit.reports.metrics import CATALOGUE
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

sys.path.insert(0, str(ROOT / "tools"))
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without its gallery, notebooks not run: links and pages are what is held here.

    In Sphinx' plainest theme: ours writes a tree of all pages into each, half of the time.
    """
    pytest.importorskip("myst_nb", reason="pip install 'profkit[site]'")
    import build_site

    folder = tmp_path_factory.mktemp("site")
    build_site.written(folder / "source", pictures=False, probes=False)
    plain = "html_theme=basic"
    assert build_site.built(folder / "source", folder / "html", plain) == 0, "a warning is an error"
    return folder / "html"


@pytest.mark.slow
def test_the_theme_fetches_nothing(tmp_path: Path) -> None:
    """Two pages with all that is around a page of the real site."""
    pytest.importorskip("myst_nb", reason="pip install 'profkit[site]'")
    import build_site

    source = tmp_path / "source"
    source.mkdir()
    for name in ("conf.py", "_static"):
        (source / name).symlink_to(ROOT / "docs" / name)
    (source / "index.md").write_text("# A page\n\n:::{toctree}\nother\n:::\n", "utf-8")
    (source / "other.md").write_text("# Another page\n\n```cuda\nint n;\n```\n", "utf-8")
    assert build_site.built(source, tmp_path / "html") == 0
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) >= 2
    for page in pages:
        check_fetches_nothing(Links(page), page)
    check_styles(tmp_path / "html")


def check_fetches_nothing(page: Links, path: Path) -> None:
    assert not [url for url in page.fetched if re.match(r"(https?:)?//", url)], path


def check_styles(html: Path) -> None:
    style = "".join(p.read_text("utf-8") for p in html.rglob("*.css"))
    assert style
    assert not re.search(r"url\([\"']?https?:|@import", style)


class Links(HTMLParser):
    """What a page fetches, and where it leads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.leads: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names.add(found.get("id", ""))
        if tag in FETCHED and FETCHED[tag] in found:
            self.fetched.append(found[FETCHED[tag]])
        if tag == "a" and "href" in found:
            self.leads.append(found["href"])


@pytest.mark.slow
def test_a_page_fetches_nothing_and_leads_somewhere(site: Path) -> None:
    pages = {path.resolve(): Links(path) for path in site.rglob("*.html")}
    assert len(pages) > len(ALL)
    for path, page in pages.items():
        check_fetches_nothing(page, path)
        for link in page.leads:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, name = link.partition("#")
            there = (path.parent / target).resolve() if target else path
            if there.suffix == ".html" and "gallery" not in there.parts:
                assert there in pages, (path, link)
                assert not name or name in pages[there].names, (path, link)
    check_styles(site)


@pytest.mark.slow
def test_the_reference_has_everything(site: Path) -> None:
    for rule in ALL:
        assert (
            "What happens in the hardware" in (site / f"reference/rules/{rule.id}.html").read_text()
        )
    metrics = (site / "reference" / "metrics.html").read_text()
    assert not [name for name in CATALOGUE if name not in metrics]
    verbs = (site / "reference" / "verbs.html").read_text()
    assert "profkit diagnose" in verbs
    api = (site / "reference" / "api.html").read_text()
    assert "pk.diagnose(" in api
    assert "DataFrame" in api
