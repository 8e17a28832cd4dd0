#!/usr/bin/env bash
# Broken files and arguments: one line on stderr that begins with "foreplan: " and names the file or option, the value and
# the rule; nothing on stdout; exit code 2. Never a crash, an internal error or a stack trace.
set -u
foreplan=${FOREPLAN:?the binary}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0 cases=0
"$foreplan" --help >/dev/null || exit 1

# refused PART WORD...: the command line WORD... must be refused with a line that contains PART.
refused() {
  local part=$1 code
  shift
  timeout 60 "$foreplan" "$@" >"$folder/out" 2>"$folder/err"
  code=$?
  cases=$((cases + 1))
  if [ "$code" -ne 2 ] || [ "$(wc -l <"$folder/err")" -ne 1 ] || [ -s "$folder/out" ] ||
    ! grep -q '^foreplan: ' "$folder/err" || ! grep -qF -- "$part" "$folder/err"; then
    failures=$((failures + 1))
    printf 'FAILED (exit %s), expected "%s": foreplan %s\n' "$code" "$part" "$*"
    head -c 1000 "$folder/err"
  fi
}

# changed FILE FROM TO: the path of a copy of FILE with the first FROM replaced (sed's regular expression).
changed() {
  local copy
  copy=$folder/changed_$((RANDOM))_$(basename "$1")
  sed -e "0,/$2/s//$3/" "$1" >"$copy"
  cmp -s "$1" "$copy" && printf 'FAILED: %s has no %s\n' "$1" "$2" >&2
  printf '%s' "$copy"
}

model=models/llama-3.1-8b.json
config=tests/data/hf_configs/llama-3.1-8b.json
hardware=hardware_profiles/dgx-h100.json
plan=tests/fuzz/corpus/plan/plan.json
size=(--seq-len 2048 --global-batch 64)

# ------------------------------------------------------------------------------------------------ every reader, any file

: >"$folder/empty.json"
head -c 100000000 /dev/zero | tr '\0' '[' >"$folder/brackets.json"
printf '{"format": "foreplan model 1", "layers": NaN}' >"$folder/nan.json"
printf '\377\376\000' >"$folder/bytes.json"
printf '[1, 2]' >"$folder/list.json"
printf '{"format": "foreplan report 1"}' >"$folder/other.json"
mkdir "$folder/directory.json"

any_file() { # words before the file
  refused "$folder/missing.json: no such file" "$@" "$folder/missing.json"
  refused "is a directory" "$@" "$folder/directory.json"
  refused "is empty" "$@" "$folder/empty.json"
  refused "nested deeper than 64" "$@" "$folder/brackets.json"
  refused "nan.json: parse error" "$@" "$folder/nan.json"
  refused "bytes.json: parse error" "$@" "$folder/bytes.json"
  refused "must be an object" "$@" "$folder/list.json"
  refused 'other.json: format: "foreplan report 1"' "$@" "$folder/other.json"
}
any_file show model
any_file show hardware
any_file plan --hardware "$hardware" --nodes 1 "${size[@]}" --model
any_file plan --model "$model" --nodes 1 "${size[@]}" --hardware
any_file simulate --hardware "$hardware" "${size[@]}" --model
any_file simulate --model "$model" "${size[@]}" --hardware
any_file simulate --model "$model" --hardware "$hardware" --plan

# ------------------------------------------------------------------------------------------------------ a value in a file

bad_model() { refused "$1" show model "$(changed "$model" "$2" "$3")"; }
bad_model 'layer: 32 is an unknown key; did you mean "layers"?' '"layers"' '"layer"'
bad_model 'layers: -32 must be a whole number from 1' '"layers": 32' '"layers": -32'
bad_model 'layers: 1e+30 must be a whole number from 1' '"layers": 32' '"layers": 1e30'
bad_model 'layers: "32" must be a whole number' '"layers": 32' '"layers": "32"'
bad_model 'hidden: 4096.5 must be a whole number' '"hidden": 4096' '"hidden": 4096.5'
bad_model 'kv_heads: 7 must divide heads = 32' '"kv_heads": 8' '"kv_heads": 7'
bad_model 'kv_heads: 8 must divide heads = 31' '"heads": 32' '"heads": 31'
bad_model 'norm: "rms" is unknown; valid: layer_norm, rms_norm' '"rms_norm"' '"rms"'
bad_model 'biases: null must be true or false' '"biases": false' '"biases": null'
bad_model 'the key "hidden" stands twice' '"layers": 32' '"hidden": 32'

bad_config() { refused "$1" show model "$(changed "$config" "$2" "$3")"; }
bad_config 'model_type: "lama" is a family that Foreplan does not know' '"llama"' '"lama"'
bad_config 'hidden_size: is missing' '"hidden_size"' '"hidden_sizes"'
bad_config 'num_key_value_heads: 5 must divide heads = 32' '"num_key_value_heads": 8' '"num_key_value_heads": 5'
bad_config 'vocab_size: -1 must be a whole number' '"vocab_size": 128256' '"vocab_size": -1'
bad_config 'vocab_size: 1e+30 must be a whole number' '"vocab_size": 128256' '"vocab_size": 1e30'
bad_config 'hidden_act: "tanh" is not an activation' '"silu"' '"tanh"'
refused 'num_experts_per_tok: is missing' show model tests/data/hf_configs/deepseek-v2-subset.json

bad_hardware() { refused "$1" show hardware "$(changed "$hardware" "$2" "$3")"; }
bad_hardware 'chip.memory_bandwidth.value: "3350 GB" has the unknown unit "GB"; valid units' '3350 GB\/s' '3350 GB'
bad_hardware 'has no unit' '3350 GB\/s' '3350'
bad_hardware 'must be finite and not negative' '3350 GB\/s' '-3350 GB\/s'
bad_hardware 'must be finite and not negative' '3350 GB\/s' 'nan GB\/s'
bad_hardware 'out of range' '3350 GB\/s' '1e400 GB\/s'
bad_hardware 'node.devices.value: 1e+30 must be a whole number from 1 to 1024' '"devices": {"value": 8' '"devices": {"value": 1e30'
bad_hardware 'chip.bf16_peak.sources: "dense' '"source"' '"sources"'

bad_plan() { refused "$1" simulate --model "$model" --hardware "$hardware" --plan "$(changed "$plan" "$2" "$3")"; }
bad_plan 'tpp: 8 is an unknown key; did you mean "tp"?' '"tp"' '"tpp"'
bad_plan 'tp: -8 must be a whole number' '"tp": 8' '"tp": -8'
bad_plan 'gradient_clip: -1.0 must be a number from 0' '"gradient_clip": 1.0' '"gradient_clip": -1.0'
bad_plan 'schedule: "interleave" is unknown; did you mean "interleaved"?' '"interleaved"' '"interleave"'
bad_plan 'tp 3 does not divide 32 heads; valid: 1, 2, 4, 8' '"tp": 8' '"tp": 3'
bad_plan 'a global batch of 127 is not a multiple' '"global_batch": 128' '"global_batch": 127'

# ------------------------------------------------------------------------------------------------------ the command line

refused 'pln: no such command; did you mean "plan"?' pln
refused 'show modell: cannot be shown; did you mean "model"?' show modell
refused 'show model: no FILE given' show model
refused '--model: missing' simulate
refused '--hardware: missing' simulate --model "$model" "${size[@]}"
refused '--seq-len: missing' simulate --model "$model" --hardware "$hardware" --global-batch 8
refused '--modle: no such option; did you mean "--model"?' plan --modle "$model"
for nodes in 0 -1 1e30 NaN "" 1.5 99999999999999999999; do
  refused "--nodes $nodes: must be a whole number" plan --model "$model" --hardware "$hardware" "--nodes=$nodes" "${size[@]}"
  refused "--nodes $nodes: must be a whole number" show hardware "$hardware" "--nodes=$nodes"
done
simulated=(simulate --model "$model" --hardware "$hardware")
refused '--tp 1e30: must be a whole number' "${simulated[@]}" "${size[@]}" --tp 1e30
refused 'tp 3 does not divide 32 heads; valid: 1, 2, 4, 8' "${simulated[@]}" "${size[@]}" --tp 3
refused 'cuts 32 blocks' "${simulated[@]}" "${size[@]}" --pp 64
refused 'a global batch of 63 is not a multiple' "${simulated[@]}" --seq-len 2048 --global-batch 63 --dp 2
refused '--schedule gpipo: must be one of' "${simulated[@]}" "${size[@]}" --schedule gpipo
refused '--headroom 120 %: must be a share' "${simulated[@]}" "${size[@]}" --headroom '120 %'
refused '--headroom nan: must be a share' "${simulated[@]}" "${size[@]}" --headroom nan
refused 'which cannot be simulated yet' plan --model models/mixtral-8x7b.json --hardware "$hardware" --nodes 1 "${size[@]}"
refused 'learned positions' plan --model models/gpt-3-175b.json --hardware "$hardware" --nodes 1 --seq-len 4096 --global-batch 8
refused 'which cannot be simulated yet' simulate --model models/mixtral-8x7b.json --hardware "$hardware" "${size[@]}"
for group in 8 0,0 0-8 3-1 x 0,x "" tp1 tp9 0-7:0 0- ,; do
  refused '--group ' show hardware "$hardware" "--group=$group"
done

echo "$cases broken inputs, $failures failures"
[ "$failures" -eq 0 ]
