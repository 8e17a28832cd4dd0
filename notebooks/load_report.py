"""Foreplan's JSON as data frames. Nothing of the model is computed here: columns are fields of the files.

Three files, made at once by make_inputs.py, each named by an environment variable:
  FOREPLAN_REPORT      `foreplan plan --json`: the search and its finalists     (default: sample_plan.json)
  FOREPLAN_SIMULATION  `foreplan simulate --json --details` of a plan           (default: sample_simulation.json)
  FOREPLAN_TRACE       `foreplan simulate --trace` of the same plan             (optional)
"""

import json
import os
from pathlib import Path

import pandas as pd

# Parts of a step, in the order in which they are stacked: key of the report's `breakdown`, name, colour. The colours
# are Okabe and Ito's, which stay apart for the colour-blind.
PARTS = (
    ("compute_gemm_s", "matrix products", "#0072B2"),
    ("compute_attention_s", "attention", "#56B4E9"),
    ("compute_memory_bound_s", "memory-bound kernels", "#009E73"),
    ("exposed_tp_s", "exposed tp communication", "#D55E00"),
    ("exposed_dp_s", "exposed dp communication", "#E69F00"),
    ("exposed_pp_s", "exposed pp transfers", "#CC79A7"),
    ("host_s", "host", "#000000"),
    ("bubble_s", "bubble", "#BBBBBB"),
)
HIDDEN = (
    ("hidden_tp_s", "tp communication", "#D55E00"),
    ("hidden_dp_s", "dp communication", "#E69F00"),
    ("hidden_pp_s", "pp transfers", "#CC79A7"),
)
CATEGORIES = (
    ("parameters_B", "parameters", "#0072B2"),
    ("gradients_B", "gradients", "#56B4E9"),
    ("optimizer_B", "optimizer", "#009E73"),
    ("activations_B", "activations", "#E69F00"),
    ("logits_B", "logits", "#D55E00"),
    ("communication_B", "communication", "#CC79A7"),
    ("scratch_B", "scratch", "#000000"),
)
STREAMS = {  # of a trace, by the name after "stream 7: "
    "compute": "#0072B2",
    "tp": "#D55E00",
    "dp": "#E69F00",
    "send activation": "#CC79A7",
    "receive activation": "#CC79A7",
    "send gradient": "#F0E442",
    "receive gradient": "#F0E442",
}
FORWARD, BACKWARD = "#56B4E9", "#E69F00"
GROUPS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")

_FOLDER = Path(__file__).resolve().parent


def _read(path, format_name):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if content.get("format") != format_name:
        raise ValueError(f'{path}: format {content.get("format")!r}, must be {format_name!r}')
    return content


def read_plans():
    return _read(os.environ.get("FOREPLAN_REPORT", _FOLDER / "sample_plan.json"), "foreplan plans 1")


def read_simulation():
    path = os.environ.get("FOREPLAN_SIMULATION", _FOLDER / "sample_simulation.json")
    simulation = _read(path, "foreplan report 1")
    if "details" not in simulation:
        raise ValueError(f"{path}: no `details`: make it with `foreplan simulate --json --details`")
    return simulation


def read_trace():
    """The trace's events, or None where no trace is named."""
    path = os.environ.get("FOREPLAN_TRACE")
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def short_name(plan):
    """The degrees, and what else tells plans apart."""
    parts = [f"{axis} {plan[axis]}" for axis in ("tp", "pp", "dp")]
    if plan["chunks"] > 1:
        parts.append(f"{plan['chunks']} chunks")
    parts.append(f"micro-batch {plan['micro_batch']}")
    if plan["sequence_parallel"]:
        parts.append("sequence parallel")
    if plan["zero_stage"] > 0:
        parts.append(f"ZeRO {plan['zero_stage']}")
    if plan["recompute"] != "none":
        parts.append(f"{plan['recompute']} recompute")
    return ", ".join(parts)


def columns(items, keys):
    """One row an item (a dict), the columns `keys` (tuples that begin with the field's name)."""
    return pd.DataFrame([[item[key] for key, *_ in keys] for item in items], columns=[key for key, *_ in keys])


def ranked_plans(plans):
    """A row a plan that was timed, fastest first."""
    fields = ("plan", "step_s", "peak_memory_B", "fit")
    return pd.DataFrame([[plan[field] for field in fields] for plan in plans["ranked"]], columns=fields)


def passes(simulation):
    """A row a forward or backward pass: stage, kind, chunk, micro_batch, start_s, end_s."""
    return pd.DataFrame(simulation["details"]["passes"])


def memory_course(simulation, stage):
    """A row a moment of the issue order: bytes by category afterwards, peak_B on the way there, start_s, end_s."""
    moments = simulation["details"]["memory"][stage]
    course = columns([moment["use"] for moment in moments], CATEGORIES)
    for field in ("peak_B", "start_s", "end_s"):
        course[field] = [moment[field] for moment in moments]
    return course


def ranks(simulation):
    """A row a rank: rank, tp, dp, pp (its index on each axis), node."""
    return pd.DataFrame(simulation["details"]["ranks"])


def kernels(events):
    """A row a kernel of a trace: rank, stream ("compute", "tp", ...), op, where, start_s, end_s."""
    streams = {
        (event["pid"], event["tid"]): event["args"]["name"].split(": ", 1)[1]
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"].startswith("stream ")
    }
    rows = [
        (
            event["pid"],
            streams[event["pid"], event["tid"]],
            event["args"]["op"],
            event["args"]["where"],
            event["ts"] * 1e-6,
            (event["ts"] + event["dur"]) * 1e-6,
        )
        for event in events
        if event.get("cat") == "kernel"
    ]
    return pd.DataFrame(rows, columns=["rank", "stream", "op", "where", "start_s", "end_s"])
