#!/usr/bin/env python3
"""foreplan-run's results: the same losses under every plan, memory as predicted, little time between kernels, files that can be
read. The binary is $FOREPLAN_RUN, the launcher $MPIEXEC."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

RUN = os.environ["FOREPLAN_RUN"]
MPIRUN = [os.environ.get("MPIEXEC", "mpirun"), "-q", "--oversubscribe"]

MODEL = {"format": "foreplan model 1", "name": "small", "layers": 4, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 128,
         "vocabulary": 256, "max_positions": 128, "norm": "rms_norm", "activation": "swiglu", "positions": "rotary",
         "biases": False, "tied_embeddings": True, "dropout": False}
PLAN = {"format": "foreplan plan 1", "sequence_length": 32, "global_batch": 8, "bucket_elements": 50_000}
PLANS = [{}, {"micro_batch": 4}, {"tp": 2, "sequence_parallel": True}, {"pp": 2}, {"dp": 2, "zero_stage": 1},
         {"tp": 2, "pp": 2, "recompute": "full"}, {"pp": 2, "dp": 2, "schedule": "gpipe"},
         {"pp": 2, "chunks": 2, "schedule": "interleaved", "p2p": "overlapped"}]

problems = []


def write(name, value):
    pathlib.Path(name).write_text(json.dumps(value))
    return name


def run(model, plan, *options):
    ranks = plan.get("tp", 1) * plan.get("pp", 1) * plan.get("dp", 1)
    launcher = [] if ranks == 1 else [*MPIRUN, "-n", str(ranks)]
    subprocess.run([*launcher, RUN, write("plan.json", {**PLAN, **plan}), "--model", write("model.json", model), "--json",
                    "run.json", "--trace", "trace.json", "--warm-up", "0", *options], check=True, stdout=subprocess.PIPE, timeout=60)
    json.loads(pathlib.Path("trace.json").read_text())
    return json.loads(pathlib.Path("run.json").read_text())


def check(good, text):
    if not good:
        problems.append(text)


def same_losses():
    """In fp64 every plan is the step of one device up to rounding. A step's loss is a mean of 256 tokens' of size 6, each out of
    sums of at most 256 terms, and later losses come from weights that three updates have made: 1e-10 is generous."""
    reference = None
    for plan in PLANS:
        losses = run(MODEL, plan, "--dtype", "fp64", "--steps", "4")["losses"]
        reference = reference or losses
        difference = max(abs(a / b - 1) for a, b in zip(losses, reference))
        check(len(losses) == 4 and difference < 1e-10, f"{plan}: losses {losses}, not {reference}")
        print(f"losses differ by {difference:.0e}: {plan}")


def memory_as_predicted():
    for plan in PLANS:
        result = run(MODEL, plan, "--steps", "2")
        for rank in result["ranks"]:
            check(rank["peak_bytes"] == rank["predicted_peak_bytes"],
                  f"{plan}: rank {rank['rank']} has a peak of {rank['peak_bytes']}, not {rank['predicted_peak_bytes']} bytes")
            check(all(arrival <= start <= end for _, _, arrival, start, end in rank["entries"]), f"{plan}: entries out of order")
    print(f"memory as predicted: {len(PLANS)} plans")


def little_overhead():
    """At most 3 % of the kernels' time where they take 200 us and more on average; the best of three, since others use this machine."""
    best = 1
    for _ in range(3):
        result = run({**MODEL, "hidden": 256, "ffn": 512}, {"sequence_length": 128}, "--dtype", "fp32", "--repeats", "6")
        entries = result["ranks"][0]["entries"] # of the median repeat
        kernels, count = sum(end - start for _, _, _, start, end in entries), len(entries)
        check(kernels / count > 200e-6, f"kernels of {kernels / count * 1e6:.0f} us are too short to tell")
        best = min(best, max(entry[4] for entry in entries) / kernels - 1)
        if best <= 0.03:
            break
    check(best <= 0.03, f"between kernels: {best:.1%} of their time")
    print(f"between {count} kernels of {kernels / count * 1e6:.0f} us: {best:.2%} of their time")


if __name__ == "__main__":
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        same_losses()
        memory_as_predicted()
        little_overhead()
        os.chdir("/")
    print("\n".join(problems) if problems else "all runs as they should be")
    sys.exit(1 if problems else 0)
