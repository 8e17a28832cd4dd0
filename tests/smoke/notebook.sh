#!/usr/bin/env bash
# notebooks/plan_report.ipynb runs on the committed sample and on a fresh search, timeline and trace; its last cell
# checks the figures against the JSON. Runs from the repository's root; $FOREPLAN is the binary, $PYTHON a Python that
# has nbconvert.
set -eu
python=${PYTHON:-/usr/bin/python3}
tests/install_packages jupyter-nbconvert python3-ipykernel python3-matplotlib python3-pandas
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder MPLCONFIGDIR=$folder/matplotlib PYTHONDONTWRITEBYTECODE=1 # nothing is left behind

executed() { # name, figures that must be there
  "$python" -m nbconvert --log-level=WARN --to notebook --execute --ExecutePreprocessor.timeout=50 \
    --output-dir "$folder" --output "$1" notebooks/plan_report.ipynb 2>"$folder/log" ||
    { cat "$folder/log" >&2; exit 1; }
  "$python" - "$folder/$1" "$2" <<'PYTHON'
import base64, json, sys
cells = json.load(open(sys.argv[1]))["cells"]
outputs = [output for cell in cells for output in cell.get("outputs", [])]
images = [base64.b64decode(o["data"]["image/png"]) for o in outputs if "image/png" in o.get("data", {})]
assert len(images) == int(sys.argv[2]), f"{len(images)} figures, must be {sys.argv[2]}"
assert all(image.startswith(b"\x89PNG") and len(image) > 5000 for image in images), "an empty figure"
said = "".join("".join(output.get("text", "")) for output in outputs)
assert "figures agree with the JSON" in said, "the checks did not run"
print(said.strip().splitlines()[-1])
PYTHON
}

"$python" notebooks/make_inputs.py "$folder/fresh" --model models/llama-3.1-8b.json \
  --hardware tests/data/test_hardware.json --nodes 2 --seq-len 4096 --global-batch 32 \
  --require "pp>=4" --require "chunks=2"
unset FOREPLAN_REPORT FOREPLAN_SIMULATION FOREPLAN_TRACE
executed sample.ipynb 6
export FOREPLAN_REPORT=$folder/fresh/plans.json FOREPLAN_SIMULATION=$folder/fresh/simulation.json
export FOREPLAN_TRACE=$folder/fresh/trace.json
executed fresh.ipynb 7
