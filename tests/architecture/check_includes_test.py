#!/usr/bin/env python3
"""The include check finds what it must: one file a rule, and files that break none."""

import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).with_name("check_includes.py")

FILES = {  # file -> includes; those marked "!" must be reported
    "src/units/a.hpp": ["<vector>"],
    "src/units/b.hpp": ['!"program/p.hpp"'],
    "src/io/i.hpp": ['"units/a.hpp"', "<nlohmann/json.hpp>"],
    "src/model/m.hpp": ['"io/i.hpp"', '"units/a.hpp"', "!<nlohmann/json.hpp>"],
    "src/plan/q.hpp": ['"model/m.hpp"', '!"cluster/c.hpp"'],
    "src/cluster/c.hpp": ['"units/a.hpp"', '!"model/m.hpp"'],
    "src/program/p.hpp": ['"plan/q.hpp"', '!"timing/t.hpp"', '!"planner/s.hpp"', '!"src/model/m.hpp"', '!"p.hpp"'],
    "src/timing/t.hpp": ['"cluster/c.hpp"', '"program/p.hpp"', '!"engine/e.hpp"'],
    "src/engine/e.hpp": ['"timing/t.hpp"', "!<simgrid/s4u.hpp>", '!"engine/simgrid_e.hpp"'],
    "src/engine/simgrid_e.hpp": ["<simgrid/s4u.hpp>", '"engine/e.hpp"'],
    "src/report/r.hpp": ['"timing/t.hpp"', '!"engine/e.hpp"'],
    "planner/s.hpp": ['"engine/e.hpp"', '"engine/simgrid_e.hpp"', "!<cxxopts.hpp>", '!"cli/x.hpp"', "!<mpi.h>"],
    "cli/x.hpp": ['"planner/s.hpp"', "<cxxopts.hpp>"],
    "tests/unit/u_test.cpp": ['"planner/s.hpp"', "!<catch2/catch.hpp>"],
}

with tempfile.TemporaryDirectory() as folder:
    expected = set()
    for name, includes in FILES.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"#include {include.lstrip('!')}\n" for include in includes))
        expected |= {f"{name}:{line}" for line, include in enumerate(includes, 1) if include.startswith("!")}
    result = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True)
    reported = {line.split(": ")[0] for line in result.stdout.splitlines()[:-1]}
    print(result.stdout)
    assert result.returncode == 1 and reported == expected, f"expected {sorted(expected ^ reported)}"
