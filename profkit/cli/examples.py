"""Every verb's examples, with which its help ends: each flag stands in one, and each one parses."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "diagnose": (
        "profkit diagnose my.ncu-rep --lines 5         # five source lines of each finding",
        "profkit diagnose runs/ --top 3 --quiet        # the three worst of a folder",
        "profkit diagnose runs/ --kernel flash --all   # launches one by one",
        "profkit diagnose runs/ --where 'bound == \"memory\"' --json",
        "profkit diagnose runs/ --markdown             # for a pull request",
        "profkit diagnose runs/ --csv runs.csv --parquet runs.parquet",
    ),
    "roofline": (
        "profkit roofline runs/ --output roof.svg",
        "profkit roofline runs/ --kernel gemm --where 'time > 1e-5' --quiet",
    ),
    "report": (
        "profkit report runs/ -o page.html             # one page, to open, send and print",
        "profkit report *.ncu-rep -o page.html --title 'Attention' --top 20 --quiet",
        "profkit report runs/ --output page.html --kernel flash --where 'time > 1e-5'",
        "profkit report stage2.B --markdown            # one variant, for a pull request",
        "profkit report stage2 --against stage1 --case B --gate gates.py --json",
        "profkit report stage2 --artifacts h100 --anyway",
    ),
    "explain": (
        "profkit explain                               # every rule and every metric",
        "profkit explain shared-bank-conflicts         # or a limiter, or ncu's metric",
        "profkit explain --markdown                    # the whole reference",
    ),
    "compare": (
        "profkit compare stage1 stage2 --case B",
        "profkit compare old.ncu-rep new.ncu-rep --all # every metric that moved",
        "profkit compare base/artifacts artifacts --fail-on slower --markdown --quiet",
        "profkit compare --ladder --artifacts runs --json",
        "profkit compare --ladder --case B -o ladder.png",
        "profkit compare h100/ h200/ --anyway          # across GPUs: only to look",
    ),
    "verify": (
        "profkit verify analyses/*.py",
        "profkit verify mine.py --artifacts runs --markdown",
        "profkit verify mine.py --json --quiet",
    ),
    "ledger": (
        "profkit ledger",
        "profkit ledger --update --quiet               # after a profile",
        "profkit ledger --artifacts runs --ledger ledger.jsonl --json",
        "profkit ledger --markdown --output ledger.svg",
    ),
    "list": (
        "profkit list",
        "profkit list --problem attention",
        "profkit list --kernels mine --build-dir build --artifacts runs --json",
    ),
    "doctor": (
        "profkit doctor",
        "profkit doctor --json",
    ),
    "build": (
        "profkit build --variant stage2 --arch 80,89,90",
        "profkit build --all --arch 90 --refresh --artifacts runs",
        "profkit build --all --kernels mine --build-dir build --json --quiet",
    ),
    "check": (
        "profkit check --variant stage2 --sanitize     # compute-sanitizer's four tools too",
        "profkit check --all --case B --kernels mine --build-dir build",
        "profkit check --variant stage2 --json --quiet",
    ),
    "bench": (
        "profkit bench --variant stage2 --variant champion --case B",
        "profkit bench --all --kernels mine --build-dir build --json --quiet",
    ),
    "profile": (
        "profkit profile --variant stage2 --case B",
        "profkit profile --all --kernels mine --build-dir build --artifacts runs",
        "profkit profile --variant stage2 --set basic --cache-control none --json -q",
        "profkit profile --kernel softmax -o run.ncu-rep -- python train.py",
        "profkit profile --skip 10 --count 3 --timeout 1800 -- ./train",
    ),
    "tune": (
        "profkit tune --variant v3 --case B",
        "profkit tune --variant v3 --case B --resume   # after Ctrl-C, a crash or a kill",
        "profkit tune --variant v3 --trials 200 --time 600 --seed 1 --gpus all --quiet",
        "profkit tune --variant v3 --storage sqlite:///a.db --no-steer --no-profile",
        "profkit tune --variant v3 --min-occupancy 0.5 --timeout 60 -o found --json",
        "profkit tune --variant mine --kernels mine --build-dir build --artifacts runs",
    ),
}
