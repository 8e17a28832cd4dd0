"""`foreplan accuracy ... --json` as data frames. Nothing of the model is computed here: columns are fields of the JSON.

Three files, each named by an environment variable; without it the command is run, on the published measurements:
  FOREPLAN_COLLECTIVES  `foreplan accuracy collectives --json`
  FOREPLAN_KERNELS      `foreplan accuracy kernels --json`
  FOREPLAN_RUNS         `foreplan accuracy runs --json`
$FOREPLAN is the binary; without it, the repository's ./foreplan.
"""

import json
import os
import subprocess
from pathlib import Path

import pandas as pd

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#999999")
MEBIBYTE = 1 << 20

_ROOT = Path(__file__).resolve().parent.parent


def _report(what, format_):
    path = os.environ.get(f"FOREPLAN_{what.upper()}")
    if path:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    else:
        binary = os.environ.get("FOREPLAN", str(_ROOT / "foreplan"))
        done = subprocess.run([binary, "accuracy", what, "--json"], cwd=_ROOT, check=True, capture_output=True)
        report = json.loads(done.stdout)
    if report.get("format") != format_:
        raise ValueError(f"{path or what}: format {report.get('format')!r}, must be {format_!r}")
    return report


def read(what):
    """what: collectives or kernels -> the report, its rows as a frame, its bands as a frame"""
    report = _report(what, "foreplan accuracy 1")
    return report, pd.DataFrame(report["rows"]), pd.DataFrame(report["bands"])


def read_runs():
    """training runs that are scored: trust A and B, neither in the slow mode nor at the memory cliff"""
    rows = pd.DataFrame(_report("runs", "foreplan run accuracy 1")["rows"])
    return rows[rows["trust"].isin(("A", "B")) & (rows["class"] == 0)]


def p90_of_chip(bands, chip, bytes_):
    """Nine of ten left-out points of the chip lie within: by size, below 1 MiB and from there on."""
    size = "< 1 MiB" if bytes_ < MEBIBYTE else ">= 1 MiB"
    pooled = (bands["op"] == "all") & (bands["scale"] == "all")
    found = bands[(bands["chip"] == chip) & pooled & (bands["size"] == size)]
    return float(found["p90"].iloc[0])
