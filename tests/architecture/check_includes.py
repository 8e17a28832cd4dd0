#!/usr/bin/env python3
"""Checks who includes whom. Usage: check_includes.py [repository root]. Prints every include that the rules below forbid."""

import pathlib
import re
import sys

# Folder -> what it may include besides itself, units and io. `src` stands for every folder of src.
BASE = {"units", "io"}
PROGRAM = {"model", "plan", "program"}
ALLOWED = {
    "units": set(),
    "io": set(),
    "model": set(),
    "cluster": set(),
    "plan": {"model"},
    "program": {"model", "plan"},
    "interpreter": PROGRAM,
    "timing": PROGRAM | {"cluster"},
    "timeline": PROGRAM,
    "engine": PROGRAM | {"cluster", "timing", "timeline"},
    "report": PROGRAM | {"cluster", "timing", "timeline", "interpreter"},
    "interop": {"model", "cluster", "plan", "report"},
    "planner": {"src"},
    "validate": {"src", "planner"},
    "cli": {"src", "planner", "validate"},
    "bench": {"src", "planner", "validate", "tests"},
    "tests": {"src", "planner", "validate", "cli"},
}
SRC = ["units", "io", "model", "cluster", "plan", "program", "interpreter", "timing", "timeline", "engine", "report", "interop"]

# Package (how its headers begin) -> the only files that may include it.
PACKAGES = {
    r"simgrid/": r"src/engine/simgrid_.*",
    r"Eigen/": r"src/interpreter/.*|validate/.*|tests/.*",
    r"nlohmann/": r"src/(io|report|interop)/.*|validate/devices/.*|cli/.*|tests/.*",
    r"cxxopts": r"(cli|bench)/.*",
    r"catch2/": r"tests/(catch\.hpp|main\.cpp)",
    r"mpi\.h": r"planner/mpi.*|validate/devices/.*|tests/device/.*",
    r"(cuda|cublas|nccl|hip|rccl)": r"validate/devices/.*",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def folder_of(path):
    """The folder that rules name: 'src/program/x.hpp' -> 'program', 'planner/x.hpp' -> 'planner'."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def allowed_from(folder):
    names = ALLOWED[folder] | {folder} | (BASE if folder != "units" else set())
    if folder == "io":
        names = {"io", "units"}
    return names | set(SRC) if "src" in names else names


def problem_of(root, path, quote, name):
    """What is wrong with one include, or None."""
    for begin, files in PACKAGES.items():
        if quote == "<" and re.match(begin, name) and not re.fullmatch(files, path.as_posix()):
            return f"<{name}> may be included by {files} only"
    if quote == "<":
        return None
    target = pathlib.PurePosixPath(name)
    if not (root / "src" / target).is_file() and not (root / target).is_file():
        return f'"{name}" stands neither under src nor under the root'
    if name.startswith("src/"):
        return f'"{name}": write it relative to src'
    folder, included = folder_of(path), target.parts[0]
    if included not in allowed_from(folder):
        return f'"{name}": {folder} may include {", ".join(sorted(allowed_from(folder)))}'
    if included == "engine" and target.name.startswith("simgrid_") and folder == "engine" \
            and not path.name.startswith("simgrid_"):
        return f'"{name}": only simgrid_* files of the engine know SimGrid\'s'
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    problems, count = [], 0
    for top in ["src", "planner", "validate", "cli", "bench", "tests"]:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in {".hpp", ".cpp", ".h", ".cu", ".cuh", ".hip"}:
                continue
            path = file.relative_to(root)
            if folder_of(path) not in ALLOWED:
                problems.append(f"{path}: the folder {folder_of(path)} has no rule in {pathlib.Path(__file__).name}")
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    count += 1
                    problem = problem_of(root, path, match[1], match[2])
                    if problem:
                        problems.append(f"{path}:{number}: {problem}")
    print("\n".join(problems + [f"{count} includes, {len(problems)} forbidden"]))
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
