#!/usr/bin/env python3
"""Predicted against measured over plans that no calibration has seen.

Usage: validate_plans.py --profile-1 FILE --profile-2 FILE [--repeats 5] [--only TEXT] [--foreplan BINARY] [--json OUT]
                         [--median 0.12] [--worst 0.35] [--draw COUNT --seed N]

The profiles are written by `foreplan calibrate --this-machine`: --profile-1 with one rank that has all cores
(--ranks 1), --profile-2 with two ranks (--ranks 2). Either may be left out; its plans are then skipped. Prints a table;
the exit code is 1 when the median or the worst error is beyond the bound, a peak of memory differs by more than 1 %, or
two plans of like work that measure more than 15 % apart are predicted in the wrong order. --draw takes that many random
models and plans instead of the list: what nobody has looked at.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def gpt(hidden, layers, vocabulary=6144, **other):
    return dict(name=f"GPT {hidden}x{layers}", layers=layers, hidden=hidden, heads=hidden // 64, kv_heads=hidden // 64,
                ffn=4 * hidden, vocabulary=vocabulary, max_positions=4096, norm="layer_norm", activation="gelu",
                positions="learned", biases=True, tied_embeddings=False, dropout=False, **other)


def llama(hidden, layers, vocabulary=8192):
    heads = hidden // 64
    return dict(name=f"Llama {hidden}x{layers}", layers=layers, hidden=hidden, heads=heads,
                kv_heads=2 if heads % 2 == 0 else 1, ffn=hidden * 5 // 2, vocabulary=vocabulary, max_positions=4096,
                norm="rms_norm", activation="swiglu", positions="rotary", biases=False, tied_embeddings=False,
                dropout=False)


def plan(s, b, batch, **other):
    return dict(sequence_length=s, micro_batch=b, global_batch=batch, **other)


# (model, plan, small): the small ones are what CI runs.
TWO_RANKS = [
    (gpt(384, 4), plan(512, 2, 2, tp=2), True),
    (gpt(384, 4), plan(512, 2, 2, tp=2, sequence_parallel=True), False),
    (llama(768, 4), plan(768, 1, 1, tp=2), False),
    (llama(768, 4), plan(768, 1, 2, tp=2, sequence_parallel=True), False),
    (gpt(384, 4), plan(768, 1, 2, dp=2), True),
    (gpt(384, 4), plan(768, 1, 2, dp=2, zero_stage=1), False),
    (llama(640, 4), plan(384, 1, 8, dp=2), False),
    (llama(640, 4), plan(384, 2, 8, dp=2, zero_stage=1, bucket_elements=2000000), False),
    (gpt(384, 6), plan(768, 1, 4, pp=2), False),
    (gpt(384, 6), plan(768, 1, 4, pp=2, schedule="gpipe"), False),
    (llama(640, 4), plan(384, 1, 8, pp=2, schedule="interleaved", chunks=2, p2p="overlapped"), False),
    (llama(640, 4), plan(384, 1, 8, pp=2), False),
    (llama(768, 4), plan(768, 1, 2, dp=2, recompute="full"), False),
    (gpt(640, 3), plan(1536, 1, 1, tp=2, recompute="full"), False),
    (gpt(640, 3), plan(640, 1, 1, tp=2, attention="unfused", recompute="selective"), False),
    (gpt(384, 4), plan(512, 2, 4, dp=2, parameter_dtype="fp32"), False),
]
ONE_RANK = [
    (gpt(384, 4), plan(512, 4, 4), True),
    (gpt(384, 4), plan(512, 1, 4), False),
    (llama(768, 4), plan(768, 1, 1), False),
    (llama(768, 4), plan(768, 1, 1, recompute="full"), False),
    (gpt(640, 3), plan(1536, 1, 1), False),
    (gpt(640, 3), plan(640, 2, 2, attention="unfused"), False),
    (gpt(640, 3), plan(640, 2, 2, attention="unfused", recompute="selective"), False),
    (gpt(384, 4), plan(512, 4, 4, parameter_dtype="fp32"), False),
    (llama(640, 6), plan(384, 3, 6), False),
    (llama(384, 2), plan(3072, 1, 1), False),
    (gpt(384, 2, vocabulary=24576), plan(768, 1, 2), False),
    (llama(1280, 2), plan(512, 1, 2), False),
]


DRAWN_WORK = 6e11  # FLOPs of a drawn step at most: about two seconds on two cores


def draw_strategy(pick):
    """A strategy of two ranks, with what is legal beside it."""
    kind = pick.choice(["tp", "dp", "pp"])
    if kind == "tp":
        return dict(tp=2, sequence_parallel=pick.random() < 0.5)
    if kind == "dp":
        return dict(dp=2, zero_stage=pick.choice([0, 1, 1, 2, 3]))
    schedule = pick.choice(["1f1b", "gpipe", "interleaved"])
    chunks = dict(chunks=2, p2p="overlapped") if schedule == "interleaved" else {}
    return dict(pp=2, schedule=schedule, **chunks)


def draw(pick, ranks):
    """A random model and plan of one or two ranks, within DRAWN_WORK."""
    while True:
        hidden = 64 * pick.randint(5, 16)
        make = pick.choice([gpt, llama])
        model = make(hidden, pick.choice([2, 3, 4, 6, 8]), vocabulary=1024 * pick.randint(4, 20))
        s, b = 128 * pick.randint(2, 16), pick.choice([1, 1, 2, 3, 4])
        strategy = draw_strategy(pick) if ranks == 2 else {}
        batch = b * strategy.get("dp", 1) * pick.choice([1, 2, 4])
        if strategy.get("schedule") == "interleaved":
            batch = b * 2 * pick.choice([1, 2])
        other = pick.choice([{}, {}, dict(recompute="full"), dict(recompute="selective", attention="unfused")])
        if pick.random() < 0.15:
            other = dict(other, parameter_dtype="fp32")
        parameters = model["layers"] * 12 * hidden * hidden + hidden * model["vocabulary"]
        tp, pieces = strategy.get("tp", 1), strategy.get("pp", 1) * strategy.get("chunks", 1)
        legal = (model["heads"] % tp == 0 and model["kv_heads"] % tp == 0 and model["layers"] % pieces == 0 and
                 model["ffn"] % tp == 0 and 4 * model["heads"] * s * s * b < 4e8)
        if legal and 2e10 < 6 * parameters * s * batch < DRAWN_WORK:
            return model, plan(s, b, batch, **strategy, **other), False


def drawn_cases(count, seed):
    pick = random.Random(seed)
    return [draw(pick, 2) for _ in range(count - count // 3)], [draw(pick, 1) for _ in range(count // 3)]


def validate(options, profile, model, plan_, folder):
    paths = {}
    for name, content in (("model", model), ("plan", plan_)):
        paths[name] = os.path.join(folder, name + ".json")
        with open(paths[name], "w") as file:
            json.dump({"format": f"foreplan {name} 1", **content}, file)
    command = [options.foreplan, "validate", paths["plan"], "--model", paths["model"], "--hardware", profile,
               "--repeats", str(options.repeats), "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not result.stdout:
        sys.exit(f"{' '.join(command)}\n{result.stderr}")
    return json.loads(result.stdout)


def describe(plan_):
    return " ".join(str(value) if key == "schedule" else f"{key.replace('_', ' ')} {value}"
                    for key, value in plan_.items())


def wrong_orders(rows):
    """Pairs of plans of one model and equal tokens that measure more than 15 % apart, predicted the other way round."""
    wrong = []
    for a, b in itertools.combinations(rows, 2):
        if a["work"] == b["work"] and abs(a["measured"] / b["measured"] - 1) > 0.15:
            if (a["measured"] < b["measured"]) != (a["predicted"] < b["predicted"]):
                wrong.append((a["text"], b["text"]))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile-1")
    parser.add_argument("--profile-2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="plans whose description has this text")
    parser.add_argument("--small", action="store_true", help="the few that CI runs")
    parser.add_argument("--foreplan", default=os.environ.get("FOREPLAN", os.path.join(ROOT, "foreplan")))
    parser.add_argument("--median", type=float, default=0.12)
    parser.add_argument("--worst", type=float, default=0.35)
    parser.add_argument("--json", help="also write the rows")
    parser.add_argument("--draw", type=int, default=0, help="this many random plans instead of the list")
    parser.add_argument("--seed", type=int, default=1, help="of --draw")
    options = parser.parse_args()

    two_ranks, one_rank = drawn_cases(options.draw, options.seed) if options.draw else (TWO_RANKS, ONE_RANK)
    rows, memory = [], 0
    print(f"{'model':16} {'plan':86} {'predicted':>10} {'measured':>10} {'spread':>7} {'error':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for profile, cases in ((options.profile_2, two_ranks), (options.profile_1, one_rank)):
            for model, plan_, small in cases if profile else []:
                text = f"{model['name']:16} {describe(plan_):86}"
                if options.only not in text or (options.small and not small):
                    continue
                result = validate(options, profile, model, plan_, folder)
                predicted, measured = result["step"]["predicted_s"], result["step"]["measured_s"]
                memory = max([memory] + [abs(peak["predicted_bytes"] / peak["measured_bytes"] - 1)
                                         for peak in result["peaks"]])
                rows.append(dict(text=text, predicted=predicted, measured=measured, result=result,
                                 error=predicted / measured - 1,
                                 work=(profile, model["name"], plan_["sequence_length"] * plan_["global_batch"],
                                       plan_.get("parameter_dtype"))))
                print(f"{text} {predicted * 1e3:7.1f} ms {measured * 1e3:7.1f} ms {result['spread'] * 100:5.1f} % "
                      f"{rows[-1]['error'] * 100:+6.1f} %", flush=True)
    if not rows:
        sys.exit("validate_plans.py: no plan was run; give --profile-1, --profile-2 or both")
    errors = [abs(row["error"]) for row in rows]
    wrong = wrong_orders(rows)
    print(f"\n{len(rows)} plans: median |error| {statistics.median(errors) * 100:.1f} %, worst {max(errors) * 100:.1f} %, "
          f"bias {statistics.median(row['error'] for row in rows) * 100:+.1f} %, "
          f"largest difference of peak memory {memory * 100:.2f} %")
    for a, b in wrong:
        print(f"wrong order:\n  {a}\n  {b}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file)
    beyond = statistics.median(errors) > options.median or max(errors) > options.worst or memory > 0.01 or wrong
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
