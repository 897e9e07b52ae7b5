"""What an agent asks, inside of one folder  ->  short texts and pictures; no command is run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError

LINES = 20  # source lines at most in one answer
WIDTH = 300  # characters at most of a line of an answer: a kernel's name may have 10,000
MOST = 20_000  # characters at most of an answer
_VARIANT = re.compile(r"\w[\w+.-]*")


@dataclass(frozen=True)
class Answers:
    """The answers about what lies in a folder; whatever leads out of it is refused.

    Attributes:
        root: The folder, resolved.
    """

    root: Path

    def diagnose(self, reports: str) -> str:
        """What the kernels of these reports wait for: cause, place, number, next step.

        Args:
            reports: A report (.ncu-rep), a folder or a glob, relative to the server's folder.
        """
        from profkit.diagnosis.launches import judged, judged_rows, with_lines
        from profkit.reports.reader import read_report
        from profkit.show.views.brief import ROWS, brief_diagnosis

        read = read_report(self.inside(reports))
        bad = [f"{f.path}: {f.status}: {f.message}" for f in read.files if f.status != "ok"]
        table = judged_rows(judged(read))
        lined = with_lines([row.shown for row in table[:ROWS]])
        first = [row.replaced(row.shown, run) for row, run in zip(table, lined, strict=False)]
        return _short("\n".join(filter(None, [brief_diagnosis([*first, *table[ROWS:]]), *bad[:5]])))

    def compare(self, before: str, after: str, case: str = "") -> str:
        """What changed from one run to another, and whether it is real.

        Args:
            before: A report, a run record, or a variant recorded in artifacts/.
            after: The same, changed.
            case: Only this case; all where it is empty.
        """
        from profkit.cli.inputs import sources
        from profkit.evidence.comparison.select import compare_sides
        from profkit.show.views.brief import brief_comparison

        sides = self._side(before), self._side(after)
        evidence = sources.evidence_of(self._path("artifacts"))
        return _short(brief_comparison(compare_sides(*sides, case or None, evidence, False)))

    def triage(self, recording: str) -> str:
        """Where the step of a whole program goes, and what to do first about it.

        Args:
            recording: A torch.profiler trace, an nsys SQLite export, or a .triage folder.
        """
        from profkit.program.document import triage_document
        from profkit.program.recorded import judge_recordings
        from profkit.show.text.markup import to_markdown
        from profkit.show.views.triage import triaged

        answer, counts = judge_recordings([self._path(recording)])
        return _short(to_markdown(triaged(triage_document(answer, counts))))

    def explain(self, name: str) -> str:
        """What a rule, a metric or a word of the verdict means, and what people do about it.

        Args:
            name: As diagnose gives it: shared-bank-conflicts, l2_hit, long_scoreboard, latency.
        """
        from profkit.show.views.explain import explain

        return str(explain(name))

    def lines(self, report: str, launch: int = 0, count: int = 5) -> str:
        """The source lines where the findings of one launch happen.

        Args:
            report: One report, relative to the server's folder.
            launch: Which launch in it, from 0.
            count: How many lines of each finding.
        """
        from profkit.diagnosis.launches import launch_lines

        (path, *_) = self.inside(report)
        frame = launch_lines(path, launch, min(count, LINES)).head(LINES)
        kept = frame[[c for c in ("rule", "file", "line", "share", "source") if c in frame]]
        return (
            _short(kept.to_string(index=False)) if len(kept) else "the report has no source lines"
        )

    def roofline(self, reports: str) -> bytes:
        """Every launch under the ceilings of its machine, as a picture (PNG).

        Args:
            reports: A report, a folder or a glob, relative to the server's folder.
        """
        from profkit.reports.reader import load_reports
        from profkit.show import plots

        return plots.png(plots.roofline(load_reports(list(self.inside(reports)))))

    def inside(self, pattern: str) -> tuple[str, ...]:
        """The reports that a path or glob names; all of them lie in the folder.

        Raises:
            ProfkitError: One does not, or there is none.
        """
        from profkit.records.paths import expand

        return tuple(str(self._path(path)) for path in expand(str(self._path(pattern))))

    def _side(self, side: str) -> str:
        path = self._path(side)
        if path.exists():
            return str(path)
        # Not a path of another folder, which it would be where the server was started: a variant.
        if not _VARIANT.fullmatch(side) or Path(side).exists():
            raise ProfkitError(f"{side}: no such report in the folder of profkit mcp")
        return side

    def _path(self, name: str) -> Path:
        """A path in the folder, links followed."""
        try:
            path = (self.root / name).resolve()
        except (ValueError, OSError, RuntimeError) as error:  # a NUL, too long, links in a circle
            raise ProfkitError(f"{name[:WIDTH]}: cannot be a path: {error}") from error
        if not path.is_relative_to(self.root):
            raise ProfkitError(f"{name}: outside of the folder that profkit mcp was started in")
        return path


def _short(text: str) -> str:
    """An answer whose lines show what would act in them, and are no longer than anyone reads."""
    from profkit.show.text.escape import escaped

    lines = [escaped(line) for line in text.split("\n")]
    cut = "\n".join(x if len(x) <= WIDTH else f"{x[: WIDTH - 3]}..." for x in lines)
    return cut if len(cut) <= MOST else f"{cut[:MOST]}\n... cut: ask about fewer reports"
