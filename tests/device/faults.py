#!/usr/bin/env python3
"""What goes wrong ends every rank soon, with one line that says what. The binary is $FOREPLAN_RUN, the launcher $MPIEXEC."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

RUN = os.environ["FOREPLAN_RUN"]
MPIRUN = [os.environ.get("MPIEXEC", "mpirun"), "-q", "--oversubscribe"]  # -q: the launcher's own words are no concern here
LIMIT = 30  # seconds from the fault to the end of all ranks

MODEL = {"format": "foreplan model 1", "name": "small", "layers": 4, "hidden": 128, "heads": 8, "kv_heads": 8, "ffn": 256,
         "vocabulary": 512, "max_positions": 256, "norm": "rms_norm", "activation": "swiglu", "positions": "rotary",
         "biases": False, "tied_embeddings": False, "dropout": False}
PLAN = {"format": "foreplan plan 1", "tp": 2, "sequence_length": 64, "global_batch": 4}

failures = []


def write(name, value):
    path = pathlib.Path(name)
    path.write_text(json.dumps(value))
    return str(path)


def children_of(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds):
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.05)
    return condition()


def expect(name, command, code, line, fault=None):
    """Runs the command; `fault` gets the ranks' process ids when they are at work. Expects the exit code (None: any but 0) and
    one line of Foreplan's that the expression matches."""
    begin = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ranks = []
    if fault:
        # at work: they have begun to step (each rank has threads of its streams)
        until(lambda: len(children_of(process.pid)) == 2, 10)
        time.sleep(2)
        ranks = children_of(process.pid)
        begin = time.time()
        fault(ranks)
    try:
        errors = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        for pid in [*ranks, process.pid]:
            os.kill(pid, signal.SIGKILL)
        errors = process.communicate()[1]
        failures.append(f"{name}: did not end")
    seconds = time.time() - begin
    lines = [text for text in errors.splitlines() if text.startswith("foreplan-run:")]
    problems = []
    if seconds > LIMIT:
        problems.append(f"took {seconds:.1f} s")
    if process.returncode == 0 or (code is not None and process.returncode != code):
        problems.append(f"exit code {process.returncode}, not {code}")
    if len(lines) != 1 or not re.search(line, lines[0]):
        problems.append(f"said {lines}, not '{line}'")
    if not until(lambda: not any(is_alive(pid) for pid in ranks), 5):
        problems.append("a rank is still alive")
    print(f"{'wrong' if problems else 'good'}  {name}, {seconds:.1f} s: {lines[0] if lines else errors[-500:]}")
    failures.extend(f"{name}: {problem}" for problem in problems)


def disk_is_full(model, plan):
    """On a file system of a few pages, if this user may mount one."""
    folder = pathlib.Path("full")
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        print("left out  full disk: no file system may be mounted here")
        return
    try:
        result = folder / "run.json"
        result.write_text("before")
        expect("full disk", [*MPIRUN, "-n", "2", RUN, plan, "--model", model, "--steps", "2", "--json", str(result)], 2,
               r"--json full/run.json: cannot be written: No space left on device")
        if [path.name for path in folder.iterdir()] != ["run.json"] or result.read_text() != "before":
            failures.append(f"full disk: left {list(folder.iterdir())}")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def main():
    model = write("model.json", MODEL)
    plan = write("plan.json", PLAN)
    other = write("other.json", {**PLAN, "sequence_length": 32})
    large = write("large.json", {**MODEL, "name": "large", "layers": 16, "hidden": 2048, "ffn": 8192})
    job = [RUN, plan, "--model", model]
    long_job = [*MPIRUN, "-n", "2", *job, "--dtype", "fp32", "--steps", "100000"]

    expect("wrong world size", [*MPIRUN, "-n", "3", *job], 2, r"= 2 ranks, but 3 processes were started: use mpirun -n 2")
    expect("alone", job, 2, r"= 2 ranks, but 1 process was started: use mpirun -n 2")
    expect("torchrun's variables, but no MPI between the processes", ["env", "WORLD_SIZE=2", "LOCAL_RANK=0", *job], 2,
           r"WORLD_SIZE = 2 processes were started by torchrun, but MPI connects 1")
    expect("no plan", [*MPIRUN, "-n", "2", RUN, "none.json", "--model", model], 2, r"none.json: ")
    expect("missing path", [*MPIRUN, "-n", "2", *job, "--json", "none/run.json"], 2,
           r"--json none/run.json: cannot be written: there is no folder none")
    expect("another program", [*MPIRUN, "-n", "1", *job, ":", "-n", "1", RUN, other, "--model", model], 2,
           r"rank 1: another program than the other ranks'")
    limited = ["bash", "-c", 'ulimit -v 3000000; exec "$@"', "limited"]
    expect("memory limit", [*MPIRUN, "-n", "1", RUN, plan, "--model", large, ":",
                            "-n", "1", *limited, RUN, plan, "--model", large], None,
           r"rank 1: the .* that the plan needs on this rank cannot be had: Cannot allocate memory")
    disk_is_full(model, plan)
    expect("kill -9", long_job, None, r"rank 0: rank 1 \(process \d+\) has died( in op '.*')?",
           lambda ranks: os.kill(ranks[1], signal.SIGKILL))
    expect("stopped", [*long_job, "--timeout", "4"], None,
           r"rank 0: no progress for 4 s in op '.*' \(.*\), waiting for rank 1, which is stopped",
           lambda ranks: os.kill(ranks[1], signal.SIGSTOP))

    if list(pathlib.Path().glob("*.part")):
        failures.append("files left half-written")
    print("\n".join(failures) if failures else "every fault ended as it should")
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        code = main()
        os.chdir("/")
    sys.exit(code)
