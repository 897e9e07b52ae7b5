"""Hot lines of one launch, as a frame."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from profkit.reports.hotlines import LinesRequest, answer_line_requests, make_lines_frame


def hot_lines(path: str | Path, launch: int, n: int = 10) -> pd.DataFrame:
    """Those with the most samples of warp states, most first; none where none were taken."""
    return make_lines_frame(
        answer_line_requests([LinesRequest(os.fspath(path), launch, sampled=n)])[0].sampled
    )
