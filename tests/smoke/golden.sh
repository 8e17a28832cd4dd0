#!/usr/bin/env bash
# Reports are byte for byte the committed ones, and the same command gives the same bytes again, on both engines and with
# any number of threads. Runs from the repository's root; $FOREPLAN is the binary.
set -eu
tests/golden/update --check

again() { # what, one command, another
  local what=$1 first second
  first=$(eval "$2") second=$(eval "$3")
  [ "$first" = "$second" ] || { echo "not the same bytes: $what" >&2; exit 1; }
}
common="--hardware tests/data/test_hardware.json --model models/llama-3.1-8b.json --seq-len 4096 --global-batch 32 --json"
pipeline="\$FOREPLAN simulate $common --tp 2 --pp 4 --dp 2"
again "simulate twice" "$pipeline" "$pipeline"
again "simulate on SimGrid twice" "$pipeline --engine simgrid" "$pipeline --engine simgrid"
search="\$FOREPLAN plan $common --nodes 1 --top 3 --finalists 1"
again "plan with 1 and with 3 threads" "$search --threads 1" "$search --threads 3"
