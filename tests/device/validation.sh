#!/usr/bin/env bash
# Calibrate this machine in short, then predict and run a few small plans. The bounds are wide: the machines of CI are shared;
# what is asked of accuracy is asked by validate_plans.py after a whole calibration. $FOREPLAN is the binary.
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$FOREPLAN" calibrate --this-machine --ranks 2 --threads 1 --quick --out "$folder/two.json"
tests/device/validate_plans.py --profile-2 "$folder/two.json" --small --median 0.5 --worst 1.5
"$FOREPLAN" show "$folder/two.json" >/dev/null
