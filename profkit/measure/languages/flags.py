"""The flags: of a header  ->  given to nvcc, or refused: some of nvcc's options run programs.

`-ccbin X` runs X, `-Xcompiler -fplugin=X` loads X, `-o` writes anywhere. What is listed here changes
code and nothing else. Whoever trusts a folder says so: --trust, or PROFKIT_TRUST=1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from profkit.errors import ProfkitError

TRUST = "PROFKIT_TRUST"
_PTXAS = r"-O[0-3]|-v|--?warn-[\w-]+|-dlcm=\w+|-dscm=\w+|--?allow-expensive-optimizations(=\w+)?"
# A whole word of nvcc's, its value after = or in the same word.
_WORDS = re.compile(
    r"-O[0-3]|-G|--device-debug|-g|-lineinfo|--generate-line-info|-w|-res-usage|--resource-usage"
    r"|-[DU]\w+(=[\w.+\-*/()<>,:]*)?"
    r"|--?maxrregcount=\d+|--?std=[\w+]+"
    r"|--?use_fast_math|--?(ftz|prec-div|prec-sqrt|fmad)=(true|false)"
    r"|--?(extra-device-vectorization|restrict|default-stream=[\w-]+)"
    r"|--?expt-(relaxed-constexpr|extended-lambda)|--?extended-lambda"
    r"|--?(diag-suppress|Werror|split-compile)=[\w,-]+"
    rf"|(-Xptxas|--ptxas-options)=({_PTXAS})(,({_PTXAS}))*"
)
# A word whose value is the next one.
_PAIRS = {
    "-D": re.compile(r"\w+(=[\w.+\-*/()<>,:]*)?"),
    "-maxrregcount": re.compile(r"\d+"),
    "--maxrregcount": re.compile(r"\d+"),
    "-std": re.compile(r"[\w+]+"),
    "--std": re.compile(r"[\w+]+"),
    "-Xptxas": re.compile(rf"({_PTXAS})(,({_PTXAS}))*"),
    "--ptxas-options": re.compile(rf"({_PTXAS})(,({_PTXAS}))*"),
}


def check_flags(flags: Sequence[str], file: str) -> None:
    """Let pass what only changes code.

    Raises:
        ProfkitError: One of them may do more, and nobody said that this folder is trusted.
    """
    if os.environ.get(TRUST) == "1":
        return
    words = iter(flags)
    for word in words:
        if word in _PAIRS:
            value = next(words, "")
            if not _PAIRS[word].fullmatch(value):
                raise _refused(f"{word} {value}".strip(), file)
        elif not _WORDS.fullmatch(word):
            raise _refused(word, file)


def _refused(flag: str, file: str) -> ProfkitError:
    return ProfkitError(
        f"{file}: 'flags: {flag}' is none of the flags that only change code",
        "an nvcc option can run any program; if you trust this folder: profkit --trust ...",
    )
