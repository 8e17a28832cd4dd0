#!/usr/bin/env bash
# notebooks/accuracy.ipynb runs on the published measurements; its last cell checks the figures against the JSON. Runs from
# the repository's root; $FOREPLAN is the binary, $PYTHON a Python that has nbconvert.
set -eu
python=${PYTHON:-/usr/bin/python3}
tests/install_packages jupyter-nbconvert python3-ipykernel python3-matplotlib python3-pandas
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME=$folder MPLCONFIGDIR=$folder/matplotlib PYTHONDONTWRITEBYTECODE=1 # nothing is left behind

"$FOREPLAN" accuracy collectives --json >"$folder/collectives.json"
"$FOREPLAN" accuracy kernels --json >"$folder/kernels.json"
"$FOREPLAN" accuracy runs --json >"$folder/runs.json"
export FOREPLAN_COLLECTIVES=$folder/collectives.json FOREPLAN_KERNELS=$folder/kernels.json
export FOREPLAN_RUNS=$folder/runs.json
"$python" -m nbconvert --log-level=WARN --to notebook --execute --ExecutePreprocessor.timeout=100 \
  --output-dir "$folder" --output executed.ipynb notebooks/accuracy.ipynb 2>"$folder/log" ||
  { cat "$folder/log" >&2; exit 1; }
"$python" - "$folder/executed.ipynb" <<'PYTHON'
import json, sys
outputs = [output for cell in json.load(open(sys.argv[1]))["cells"] for output in cell.get("outputs", [])]
images = sum("image/png" in output.get("data", {}) for output in outputs)
said = "".join("".join(output.get("text", "")) for output in outputs)
assert "figures agree with the JSON" in said and images >= 10, f"the checks did not run; {images} figures"
print(f"{images} figures agree with the JSON")
PYTHON
