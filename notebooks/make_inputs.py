#!/usr/bin/env python3
"""Makes what plan_report.ipynb reads: a search, and the best plan's timeline.

Usage: make_inputs.py FOLDER --model FILE --hardware FILE --nodes N --seq-len N --global-batch N [options of `plan`]

Writes into FOLDER plans.json (`foreplan plan --json`), best_plan.json, simulation.json (`foreplan simulate --json
--details` of the best plan) and trace.json (`--trace`). The program is $FOREPLAN, or this repository's `foreplan`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FOREPLAN = os.environ.get("FOREPLAN", str(Path(__file__).resolve().parent.parent / "foreplan"))


def output_of(*arguments):
    run = subprocess.run([FOREPLAN, *arguments], stdout=subprocess.PIPE, text=True)
    if run.returncode not in (0, 1):  # 1: nothing fits; of others its own message says why
        sys.exit(run.returncode)
    return json.loads(run.stdout)


def option(arguments, name):
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(name + "="):
            return argument[len(name) + 1 :]
    sys.exit(f"make_inputs.py: {name} is missing")


def main(folder, *plan_arguments):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plans = output_of("plan", *plan_arguments, "--json")
    if not plans["finalists"]:
        sys.exit("make_inputs.py: no plan fits: there is nothing to draw")
    best = folder / "best_plan.json"
    best.write_text(json.dumps({"format": "foreplan plan 1", **plans["finalists"][0]["plan"]}, indent=2) + "\n")
    simulation = output_of(
        "simulate", "--model", option(plan_arguments, "--model"), "--hardware", option(plan_arguments, "--hardware"),
        "--nodes", option(plan_arguments, "--nodes"), "--plan", str(best), "--engine", "simgrid",
        "--trace", str(folder / "trace.json"), "--details", "--json",
    )  # fmt: skip
    for name, content in (("plans", plans), ("simulation", simulation)):
        (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
