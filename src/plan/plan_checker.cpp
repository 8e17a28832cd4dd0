#include "plan/plan_checker.hpp"

#include "plan/process_groups.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>

namespace foreplan {
namespace {

using Findings = std::vector<PlanFinding>;

constexpr std::size_t most_listed = 8;       // valid values in a finding
constexpr std::int64_t most_ranks = 1 << 24; // an index of a rank is 32 bits wide, and so are sums of a few
constexpr std::int64_t most_micro_batches = 1 << 20;
constexpr std::int64_t largest = std::int64_t{1} << 31; // of any number in a plan: products of two cannot overflow

void find(Findings& findings, std::string rule, std::string reason, std::vector<std::int64_t> nearest = {}) {
  if (!nearest.empty())
    reason += fmt::format("; valid: {}", fmt::join(nearest, ", "));
  findings.push_back({std::move(rule), std::move(reason), std::move(nearest)});
}

// The candidates nearest to `value`, ascending.
std::vector<std::int64_t> nearest_of(std::vector<std::int64_t> candidates, std::int64_t value) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](std::int64_t a, std::int64_t b) { return std::abs(a - value) < std::abs(b - value); });
  candidates.resize(std::min(candidates.size(), most_listed));
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> result;
  for (std::int64_t low = 1; low * low <= number; ++low)
    if (number % low == 0) {
      result.push_back(low);
      if (low * low != number)
        result.push_back(number / low);
    }
  return result;
}

std::vector<std::int64_t> divisors_from(std::int64_t number, std::int64_t least) {
  std::vector<std::int64_t> result = divisors(number);
  std::erase_if(result, [&](std::int64_t divisor) { return divisor < least; });
  return result;
}

// The multiples of `unit` on both sides of `value`, from 1 * unit on.
std::vector<std::int64_t> multiples_around(std::int64_t unit, std::int64_t value) {
  std::int64_t const below = value / unit * unit;
  if (below < unit)
    return {unit};
  return {below, below + unit};
}

// -------------------------------------------------------------------------------------------------------------- model

// Parts of models that are read and counted, but that no layer program has yet. Gated or not, every activation is taken
// for the one that costs the same (ReLU for GELU, GEGLU for SwiGLU); ALiBi and the norm of embeddings cost next to nothing.
std::string_view unknown_part(Model const& model) {
  if (model.experts)
    return "experts (mixture of experts)";
  if (model.latent_attention)
    return "latent attention";
  if (model.query_key_norm != QueryKeyNorm::none)
    return "norms of queries and keys";
  if (model.norm_placement != NormPlacement::before)
    return "norms after its branches";
  if (model.parallel_residual)
    return "attention and MLP in parallel";
  return model.attention_sinks ? "attention sinks" : "";
}

void check_model(Model const& model, Plan const& plan, Findings& findings) {
  if (std::string_view const part = unknown_part(model); !part.empty())
    find(findings, "the model can be simulated",
         fmt::format("{} has {}, which cannot be simulated yet", model.name, part));
  if (model.sliding_window && plan.sequence_length > model.sliding_window->tokens)
    find(findings, "sequence_length within the window",
         fmt::format("sequences of {} tokens exceed the model's attention window of {}, which cannot be simulated yet",
                     plan.sequence_length, model.sliding_window->tokens),
         {model.sliding_window->tokens});
}

// -------------------------------------------------------------------------------------------------------------- sizes

void check_sizes(Plan const& plan, Findings& findings) {
  auto in_range = [&](std::string_view field, std::int64_t value) {
    if (value < 1)
      find(findings, fmt::format("{} is at least 1", field),
           fmt::format("{} is {}: it must be at least 1", field, value), {1});
    if (value > largest)
      find(findings, fmt::format("{} is at most {}", field, largest),
           fmt::format("{} is {}: it must be at most {}", field, value, largest), {largest});
  };
  in_range("tp", plan.tp);
  in_range("pp", plan.pp);
  in_range("dp", plan.dp);
  in_range("cp", plan.cp);
  in_range("domino_slices", plan.domino_slices);
  in_range("domino_columns", plan.domino_columns);
  in_range("chunks", plan.chunks);
  in_range("loss_chunks", plan.loss_chunks);
  in_range("sequence_length", plan.sequence_length);
  in_range("micro_batch", plan.micro_batch);
  in_range("global_batch", plan.global_batch);
  if (!findings.empty())
    return;
  double const ranks = static_cast<double>(plan.tp) * plan.cp * plan.pp * plan.dp;
  if (ranks > static_cast<double>(most_ranks))
    find(findings, "ranks",
         fmt::format("tp {} * cp {} * pp {} * dp {} are {:.0f} ranks: at most {} can be planned for", plan.tp, plan.cp,
                     plan.pp, plan.dp, ranks, most_ranks));
}

// ---------------------------------------------------------------------------------------- tensor and sequence parallelism

struct Cut {
  std::string_view rule;
  std::string_view what;
  std::int64_t size;
  std::string_view why; // ends the reason
};

// What tp cuts.
std::vector<Cut> cuts_of(Model const& model) {
  return {
      {"tp divides heads", "heads", model.heads, ""},
      {"tp divides kv_heads", "KV heads", model.kv_heads, " (several ranks cannot share a KV head yet)"},
      {"tp divides ffn", "columns of the MLP", model.ffn, ""},
      {"tp divides vocabulary", "rows of the vocabulary", model.vocabulary,
       " (pad the model's vocabulary to a multiple of 128 * tp)"},
  };
}

// The largest tp that divides all of them.
std::int64_t largest_tp(Model const& model) {
  std::int64_t common = 0;
  for (Cut const& cut : cuts_of(model))
    common = std::gcd(common, cut.size);
  return common;
}

void check_tensor_parallel(Model const& model, Plan const& plan, Findings& findings) {
  bool heads_named = false; // KV heads divide heads: one of the two says it
  for (Cut const& cut : cuts_of(model)) {
    if (cut.size % plan.tp == 0 || (heads_named && cut.rule == "tp divides kv_heads"))
      continue;
    heads_named = heads_named || cut.rule == "tp divides heads";
    find(findings, std::string(cut.rule),
         fmt::format("tp {} does not divide {} {}{}", plan.tp, cut.size, cut.what, cut.why),
         nearest_of(divisors(largest_tp(model)), plan.tp));
  }
}

void check_sequence_parallel(Model const& model, Plan const& plan, Findings& findings) {
  if (!plan.sequence_parallel)
    return;
  if (plan.tp == 1)
    find(findings, "sequence parallelism needs tp",
         "sequence parallelism shares tokens among the ranks of a tensor-parallel group: it needs tp > 1");
  if (plan.tokens() % plan.tp == 0)
    return;
  std::vector<std::int64_t> valid = divisors(std::gcd(plan.tokens(), largest_tp(model)));
  std::erase(valid, 1);
  find(
      findings, "tp divides tokens",
      fmt::format("with sequence parallelism tp {} must divide the {} tokens of a micro-batch", plan.tp, plan.tokens()),
      nearest_of(std::move(valid), plan.tp));
}

// -------------------------------------------------------------------------------------------------- context parallelism

// Whether cp ranks can share out a rank's heads: as many KV heads each, or as many ranks to each KV head and its queries.
bool shares_heads(Model const& model, Plan const& plan, std::int64_t cp) {
  std::int64_t const kv_heads = model.kv_heads / plan.tp, queries = model.heads / model.kv_heads;
  return kv_heads % cp == 0 || (cp % kv_heads == 0 && queries % (cp / kv_heads) == 0);
}

void check_context_parallel(Model const& model, Plan const& plan, Findings& findings) {
  if (plan.cp == 1)
    return;
  if (plan.sequence_length % (2 * static_cast<std::int64_t>(plan.cp)) != 0)
    find(findings, "2 * cp divides sequence_length",
         fmt::format("a sequence of {} tokens cannot be cut into 2 * cp {} chunks of equal length",
                     plan.sequence_length, plan.cp),
         multiples_around(2 * static_cast<std::int64_t>(plan.cp), plan.sequence_length));
  if (plan.attention == Attention::unfused)
    find(findings, "context parallelism needs fused attention",
         "context parallelism needs fused attention: the log-sum-exp joins what ranks compute");
  std::int64_t const kv_heads = model.kv_heads / plan.tp;
  if (plan.cp_type != ContextParallel::all_to_all || kv_heads == 0 || shares_heads(model, plan, plan.cp))
    return;
  std::vector<std::int64_t> valid = divisors(model.heads / plan.tp);
  std::erase_if(valid, [&](std::int64_t cp) { return !shares_heads(model, plan, cp); });
  find(findings, "all_to_all: tp * cp divides heads",
       fmt::format("cp {} with all_to_all cannot share out the {} heads and {} KV heads that tp {} leaves on a rank "
                   "(ring and all_gather have no such limit)",
                   plan.cp, model.heads / plan.tp, kv_heads, plan.tp),
       nearest_of(std::move(valid), plan.cp));
}

// --------------------------------------------------------------------------------------------------------------- Domino

// Products are cut by the columns of the block's output.
void check_columns(Model const& model, std::string_view what, int slices, Findings& findings) {
  if (model.hidden % slices != 0)
    find(findings, fmt::format("{} divides hidden", what),
         fmt::format("{}: the {} columns of a block's output cannot be cut into {} slices", what, model.hidden, slices),
         nearest_of(divisors(model.hidden), slices));
}

void check_domino(Model const& model, Plan const& plan, Findings& findings) {
  if (plan.domino_slices == 1 && plan.domino != Domino::paper)
    find(findings, "domino needs domino_slices",
         fmt::format("domino {} says how slices take turns: it needs domino_slices > 1", to_string(plan.domino)), {2});
  if (plan.domino_slices == 1 && plan.domino_columns == 1)
    return;
  if (plan.tp == 1)
    find(findings, "Domino needs tp", "Domino hides tensor-parallel communication: it needs tp > 1");
  if (plan.sequence_parallel)
    find(findings, "Domino without sequence parallelism",
         "Domino cuts the rows that sequence parallelism shares out: one of the two");
  if (plan.cp > 1)
    find(findings, "Domino without context parallelism", "Domino with context parallelism is not there yet");
  if (plan.domino != Domino::paper && plan.pp > 1)
    find(findings, "released Domino without a pipeline",
         fmt::format("domino {}: the released code runs without a pipeline; pp must be 1, or domino paper",
                     to_string(plan.domino)),
         {1});
  check_columns(model, "domino_columns", plan.domino_columns, findings);
  if (plan.micro_batch % plan.domino_slices != 0)
    find(
        findings, "domino_slices divides micro_batch",
        fmt::format("a micro-batch of {} sequences cannot be cut into {} slices", plan.micro_batch, plan.domino_slices),
        nearest_of(divisors(plan.micro_batch), plan.domino_slices));
}

void check_tp_overlap(Model const& model, Plan const& plan, Findings& findings) {
  if (!plan.tp_overlap)
    return;
  if (!plan.sequence_parallel)
    find(findings, "tp_overlap needs sequence parallelism",
         "tp_overlap runs products under the gathers and scatters of sequence parallelism: it needs "
         "sequence_parallel");
  if (plan.domino_slices > 1 || plan.domino_columns > 1)
    find(findings, "tp_overlap without Domino", "tp_overlap and Domino cut the same products: one of the two");
  check_columns(model, "tp_overlap", column_slices(plan), findings);
}

// --------------------------------------------------------------------------------------------------------------- the loss

void check_loss_chunks(Plan const& plan, Findings& findings) {
  if (plan.tokens() % plan.loss_chunks != 0)
    find(findings, "loss_chunks divides tokens",
         fmt::format("the {} tokens of a micro-batch on a rank cannot be cut into {} pieces of equal length",
                     plan.tokens(), plan.loss_chunks),
         nearest_of(divisors(plan.tokens()), plan.loss_chunks));
}

// ------------------------------------------------------------------------------------------------------------- pipeline

bool every_chunk_has_a_layer(Model const& model, Plan const& plan) {
  for (int stage = 0; stage < plan.pp; ++stage)
    for (int chunk = 0; chunk < plan.chunks; ++chunk)
      if (layers_of(model, plan, Stage(stage), Chunk(chunk)).size() < 1)
        return false;
  return true;
}

// Values of pp with which every chunk has a layer.
std::vector<std::int64_t> valid_pipelines(Model const& model, Plan plan) {
  std::vector<std::int64_t> valid;
  int const most = (model.layers + 2) / plan.chunks;
  for (plan.pp = most; plan.pp >= 1 && valid.size() < most_listed; --plan.pp)
    if (every_chunk_has_a_layer(model, plan))
      valid.push_back(plan.pp);
  return valid;
}

void check_layers(Model const& model, Plan const& plan, Findings& findings) {
  std::int64_t const parts = static_cast<std::int64_t>(plan.pp) * plan.chunks;
  if (parts <= model.layers + 2 && every_chunk_has_a_layer(model, plan))
    return;
  find(findings, "every chunk has a layer",
       fmt::format(
           "pp {} with {} chunks a stage cuts {} blocks (and embedding and head) into {} chunks, some of them empty; "
           "pp must be less",
           plan.pp, plan.chunks, model.layers, parts),
       nearest_of(valid_pipelines(model, plan), plan.pp));
}

// All chunks hold as many blocks, or as many layers with embedding and head counted as one each.
bool chunks_are_even(Model const& model, int pp, int chunks) {
  return model.layers % (pp * chunks) == 0 || (model.layers + 2) % (pp * chunks) == 0;
}

std::vector<std::int64_t> even_chunks(Model const& model, int pp) {
  std::vector<std::int64_t> valid;
  for (int chunks = 2; chunks * pp <= model.layers + 2; ++chunks)
    if (chunks_are_even(model, pp, chunks))
      valid.push_back(chunks);
  return valid;
}

void check_layout(Model const& model, Plan const& plan, Findings& findings) {
  if (plan.layout.empty())
    return;
  std::int64_t const parts = static_cast<std::int64_t>(plan.pp) * plan.chunks;
  if (std::ssize(plan.layout) != parts)
    return find(
        findings, "layout names every part",
        fmt::format("a layout of {} parts for pp {} * {} chunks = {}", plan.layout.size(), plan.pp, plan.chunks, parts),
        {parts});
  std::int64_t sum = 0;
  for (int blocks : plan.layout)
    sum += blocks;
  if (sum != model.layers)
    find(findings, "layout places every block",
         fmt::format("a layout of {} blocks for a model of {}", sum, model.layers), {model.layers});
  for (std::size_t part = 0; part < plan.layout.size(); ++part)
    if (plan.layout[part] < 0 || (plan.layout[part] == 0 && part > 0 && part + 1 < plan.layout.size()))
      return find(
          findings, "every part has a layer",
          fmt::format("part {} of the layout has {} blocks; only the first and the last part, with embedding and "
                      "head, can do without",
                      part, plan.layout[part]),
          {1});
}

void check_chunks(Plan const& plan, Findings& findings) {
  if (!has_chunks(plan.schedule) && plan.chunks > 1)
    find(findings, "chunks need the interleaved schedule",
         fmt::format("{} chunks a stage need the interleaved schedule; {} runs one", plan.chunks,
                     to_string(plan.schedule)),
         {1});
  if (plan.schedule == Schedule::interleaved && plan.chunks == 1)
    find(findings, "interleaved needs chunks",
         "the interleaved schedule needs more than one chunk a stage; with one it is 1f1b", {2});
  if (is_v_shaped(plan.schedule) && plan.chunks != 2)
    find(findings, "a V has two chunks",
         fmt::format("{} runs two chunks a stage, down the pipeline and back; not {}", to_string(plan.schedule),
                     plan.chunks),
         {2});
}

// Megatron-Core's rules for the interleaved schedule without p2p overlap: stages send and receive in step with each other.
void check_batches(Plan const& plan, Findings& findings) {
  if (plan.pp == 2)
    find(findings, "interleaved on two stages overlaps p2p",
         "the interleaved schedule with synchronous p2p needs more than two stages; on two it needs overlapped p2p",
         {4});
  if (plan.micro_batch_group != 0 && plan.micro_batch_group != plan.pp)
    find(findings, "interleaved in larger groups overlaps p2p",
         fmt::format("the interleaved schedule with synchronous p2p runs micro-batches in groups of pp {}, not {}",
                     plan.pp, plan.micro_batch_group),
         {plan.pp});
}

void check_schedule(Model const& model, Plan const& plan, Findings& findings) {
  check_chunks(plan, findings);
  if (!has_chunks(plan.schedule) && !splits_backward(plan.schedule))
    return;
  std::string_view const name = to_string(plan.schedule);
  if (plan.pp == 1)
    find(findings, fmt::format("{} needs pp", name),
         fmt::format("the {} schedule passes micro-batches round the stages: it needs pp > 1", name), {2});
  if (plan.schedule == Schedule::interleaved && plan.layout.empty() && plan.chunks > 1 && plan.pp > 1 &&
      static_cast<std::int64_t>(plan.pp) * plan.chunks <= model.layers + 2 &&
      !chunks_are_even(model, plan.pp, plan.chunks))
    find(findings, "interleaved chunks are even",
         fmt::format("{} blocks on pp {} are not cut evenly by {} chunks a stage, as the interleaved schedule asks",
                     model.layers, plan.pp, plan.chunks),
         nearest_of(even_chunks(model, plan.pp), plan.chunks));
  if (plan.p2p == P2p::synchronous && plan.schedule == Schedule::interleaved)
    check_batches(plan, findings);
  else if (plan.p2p == P2p::synchronous)
    find(findings, fmt::format("{} overlaps p2p", name),
         fmt::format("the {} schedule needs overlapped p2p: with synchronous transfers all stages send at once, each "
                     "waiting for the next to receive",
                     name));
}

// ---------------------------------------------------------------------------------------------------------------- batch

// Megatron-Core's rules (schedules.py): groups of at least pp, and none left over that is smaller.
void check_micro_batch_group(Plan const& plan, Findings& findings) {
  std::int64_t const m = plan.micro_batches(), unit = plan.micro_batch * plan.dp;
  if (plan.schedule != Schedule::interleaved) {
    if (plan.micro_batch_group != 0)
      find(findings, "micro_batch_group needs the interleaved schedule",
           fmt::format("a micro-batch group of {} needs the interleaved schedule", plan.micro_batch_group), {0});
    return;
  }
  if (plan.micro_batch_group == 0) {
    if (m % plan.pp != 0)
      find(findings, "interleaved: pp divides micro-batches",
           fmt::format(
               "the interleaved schedule takes micro-batches in groups of pp {}: {} (global batch {}) are no multiple",
               plan.pp, m, plan.global_batch),
           multiples_around(unit * plan.pp, plan.global_batch));
    return;
  }
  std::int64_t const g = plan.micro_batch_group;
  if (g < plan.pp || g > m)
    return find(findings, "micro_batch_group is from pp to micro-batches",
                fmt::format("a micro-batch group of {} is not from pp {} to {} micro-batches", g, plan.pp, m),
                nearest_of({0, plan.pp, m}, g));
  if (m % g != 0 && m % g < plan.pp)
    find(findings, "micro_batch_group leaves no small group",
         fmt::format("{} micro-batches in groups of {} leave {}, fewer than pp {}", m, g, m % g, plan.pp),
         nearest_of(divisors_from(m, plan.pp), g));
}

void check_batch(Plan const& plan, Findings& findings) {
  std::int64_t const unit = plan.micro_batch * plan.dp;
  if (plan.global_batch % unit != 0) {
    find(findings, "micro_batch * dp divides global_batch",
         fmt::format("a global batch of {} is not a multiple of micro-batch {} * dp {}", plan.global_batch,
                     plan.micro_batch, plan.dp),
         multiples_around(unit, plan.global_batch));
    return;
  }
  if (plan.micro_batches() > most_micro_batches)
    find(findings, "micro-batches",
         fmt::format("{} micro-batches a step: at most {} can be planned for", plan.micro_batches(),
                     most_micro_batches));
  check_micro_batch_group(plan, findings);
  if (plan.schedule == Schedule::dualpipe_v && plan.micro_batches() < 2LL * plan.pp)
    find(findings, "dualpipe-v fills the pipeline",
         fmt::format("dualpipe-v needs at least 2 pp = {} micro-batches, not {} (global batch {})", 2 * plan.pp,
                     plan.micro_batches(), plan.global_batch),
         {unit * 2 * plan.pp});
}

void check_positions(Model const& model, Plan const& plan, Findings& findings) {
  if (model.positions == Positions::learned && plan.sequence_length > model.max_positions)
    find(findings, "sequence_length within learned positions",
         fmt::format("sequences of {} tokens exceed the {} learned positions", plan.sequence_length,
                     model.max_positions),
         {model.max_positions});
}

// ----------------------------------------------------------------------------------------------------------- what is kept

int most_blocks_of_a_chunk(Model const& model, Plan const& plan) {
  int most = 0;
  for (int stage = 0; stage < plan.pp; ++stage)
    for (int chunk = 0; chunk < plan.chunks; ++chunk) {
      LayerRange const range = layers_of(model, plan, Stage(stage), Chunk(chunk));
      most = std::max(most, std::min(range.last, model.layers + 1) - std::max(range.first, 1));
    }
  return most;
}

void check_recompute(Model const& model, Plan const& plan, Findings& findings) {
  int const n = plan.recompute_layers;
  int const most = std::max(1, most_blocks_of_a_chunk(model, plan));
  if (n == -1 || (n >= 1 && n <= most))
    return;
  find(findings, "recompute_layers within a chunk",
       fmt::format("recompute_layers {}: -1 for all, or 1 to {}, the blocks of the largest chunk (0 is recompute none)",
                   n, most),
       n < 1 ? std::vector<std::int64_t>{-1, 1} : std::vector<std::int64_t>{-1, most});
}

void check_sharding(Plan const& plan, Findings& findings) {
  if (plan.zero_stage < 0 || plan.zero_stage > 3)
    find(findings, "zero_stage is 0 to 3", fmt::format("there is no ZeRO stage {}", plan.zero_stage), {0, 1, 2, 3});
  if (plan.zero_group > 0 && plan.zero_stage == 0)
    find(
        findings, "zero_group needs zero_stage",
        fmt::format("zero_group {}: without ZeRO nothing is shared out; zero_stage must be 1 or more", plan.zero_group),
        {0});
  if (plan.zero_group < 0 || (plan.zero_group > 0 && plan.dp % plan.zero_group != 0))
    find(findings, "zero_group divides dp",
         fmt::format("groups of {} ranks that share out the states do not divide dp {}; 0 means all", plan.zero_group,
                     plan.dp),
         nearest_of(divisors(plan.dp), plan.zero_group));
  Sharding const& s = plan.sharding;
  if (plan.zero_stage >= 2 && !s.reduce_once && splits_backward(plan.schedule))
    find(findings, "zero_stage within a split backward",
         fmt::format(
             "with {} weight gradients of several micro-batches add up side by side: zero stage {} cannot reduce "
             "each by itself; reduce_once must be true, or the stage 0 or 1",
             to_string(plan.schedule), plan.zero_stage),
         {0, 1});
  auto not_negative = [&](std::string_view field, std::int64_t value) {
    if (value < 0)
      find(findings, fmt::format("{} is not negative", field), fmt::format("{} is {}", field, value), {0});
  };
  not_negative("prefetch", s.prefetch);
  not_negative("prefetch_elements", s.prefetch_elements);
  not_negative("reuse_distance", s.reuse_distance);
  not_negative("max_live_parameters", s.max_live);
  not_negative("persistence_threshold", s.persistence_threshold);
}

void check_bits(std::string_view field, int bits, Findings& findings) {
  if (bits != 0 && bits != 4 && bits != 8)
    find(findings, fmt::format("{} is 0, 4 or 8", field), fmt::format("{} {}: codes have 4 or 8 bits", field, bits),
         {0, 4, 8});
}

void check_tp_bits(Model const& model, Plan const& plan, Findings& findings) {
  check_bits("tp_bits", plan.tp_bits, findings);
  if (plan.tp_bits > 0 && plan.tp == 1)
    find(findings, "tp_bits needs tp", "quantized reductions over tp need tp > 1", {0});
  std::int64_t const elements = plan.tokens() / plan.domino_slices * model.hidden; // of a sum
  if (plan.tp_bits > 0 && elements % (2 * static_cast<std::int64_t>(plan.tp)) != 0)
    find(findings, "tp_bits: 2 * tp divides tokens * hidden",
         fmt::format("sums of {} tokens of {} are not cut into tp {} parts of an even number of elements",
                     plan.tokens() / plan.domino_slices, model.hidden, plan.tp),
         {0});
}

void check_zero_pp(Plan const& plan, Findings& findings) {
  Sharding const& s = plan.sharding;
  auto needs_stage = [&](std::string_view field, bool is_set, int least) {
    if (is_set && plan.zero_stage < least)
      find(findings, fmt::format("{} needs zero_stage", field),
           fmt::format("{} needs zero stage {}{}, not {}", field, least, least < 3 ? " or more" : "", plan.zero_stage),
           least < 3 ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>{3});
  };
  if (s.inner_group != 0 && (s.inner_group < 2 || plan.dp % s.inner_group != 0))
    find(findings, "inner_group divides dp",
         fmt::format("inner groups of {} ranks do not divide dp {}; 0 means none", s.inner_group, plan.dp),
         nearest_of(divisors_from(plan.dp, 2), s.inner_group));
  if (s.inner_group > 0 && plan.zero_group > 0)
    find(findings, "inner_group without zero_group",
         fmt::format("inner_group {}: with zero_group {} the ranks further apart hold copies; one of the two",
                     s.inner_group, plan.zero_group),
         {0});
  needs_stage("inner_group", s.inner_group > 0, 1);
  needs_stage("secondary_shard", s.secondary_shard, 3);
  needs_stage("weight_bits", s.weight_bits > 0, 3);
  needs_stage("gradient_bits", s.gradient_bits > 0, 2);
  if (s.secondary_shard && s.inner_group == 0)
    find(findings, "secondary_shard needs inner_group",
         "secondary shards (hpZ) are shared out within an inner group: inner_group must be set",
         nearest_of(divisors_from(plan.dp, 2), 8));
  if (s.gradient_bits > 0 && s.reduce_once)
    find(findings, "gradient_bits without reduce_once",
         "quantized gradients are reduced in every micro-batch: reduce_once must be false");
  check_bits("weight_bits", s.weight_bits, findings);
  check_bits("gradient_bits", s.gradient_bits, findings);
}

void check_offload(Plan const& plan, Findings& findings) {
  Offload const& offload = plan.offload;
  if (offload.optimizer != MemoryTier::device && !(offload.ratio > 0 && offload.ratio <= 1))
    find(findings, "offload_ratio is above 0, at most 1",
         fmt::format("offload_ratio {}: the part of the optimizer's states that the host keeps", offload.ratio));
  auto not_negative = [&](std::string_view field, std::int64_t value) {
    if (value < 0)
      find(findings, fmt::format("{} is not negative", field), fmt::format("{} is {}", field, value), {0});
  };
  not_negative("offload_tile", offload.tile);
  not_negative("offload_prefetch", offload.prefetch);
  not_negative("sub_group", offload.sub_group);
  if (offload.tile > 0 && offload.optimizer == MemoryTier::disk)
    find(findings, "offload_tile needs offload_optimizer host",
         fmt::format("offload_tile {}: states on disk are updated in sub-groups; say sub_group", offload.tile), {0});
  if (offload.sub_group > 0 && offload.optimizer != MemoryTier::disk)
    find(findings, "sub_group needs offload_optimizer disk",
         fmt::format("sub_group {}: with offload_optimizer {} nothing is read from disk", offload.sub_group,
                     to_string(offload.optimizer)),
         {0});
  if (offload.checkpoints && plan.recompute != Recompute::full)
    find(findings, "offload_checkpoints needs full recompute",
         fmt::format("offload_checkpoints: recompute {} keeps no layer's input alone; recompute must be full",
                     to_string(plan.recompute)));
  if (offload.parameters == MemoryTier::device)
    return;
  std::string const where = fmt::format("offload_parameters {}", to_string(offload.parameters));
  if (plan.zero_stage != 3 || plan.cp * plan.dp == 1)
    find(findings, "offload_parameters needs zero_stage 3",
         fmt::format("{}: it is shards that live there, and zero_stage {} on dp {} has none of the parameters", where,
                     plan.zero_stage, plan.dp),
         {3});
  if (offload.optimizer == MemoryTier::device || offload.ratio < 1)
    find(findings, "offload_parameters needs offload_optimizer",
         fmt::format("{}: the device would update what it does not hold; offload_optimizer must be host or disk, "
                     "offload_ratio 1",
                     where));
}

void check_states(Plan const& plan, Findings& findings) {
  check_sharding(plan, findings);
  check_zero_pp(plan, findings);
  check_offload(plan, findings);
  auto is_float = [&](std::string_view field, DType dtype) {
    if (dtype != DType::bf16 && dtype != DType::fp16 && dtype != DType::fp32)
      find(findings, fmt::format("{} is a float", field),
           fmt::format("{} {} cannot hold it; valid: bf16, fp16, fp32", field, to_string(dtype)));
  };
  is_float("parameter_dtype", plan.parameter_dtype);
  is_float("gradient_dtype", plan.gradient_dtype);
  is_float("reduction_dtype", plan.reduction_dtype);
  if (plan.bucket_elements < 0)
    find(findings, "bucket_elements is not negative",
         fmt::format("buckets of {} elements; 0 means one bucket a chunk", plan.bucket_elements), {0});
  if (!(plan.gradient_clip >= 0)) // NaN too
    find(findings, "gradient_clip is not negative",
         fmt::format("a gradient norm cannot be clipped to {}; 0 means never", plan.gradient_clip), {0});
}

} // namespace

std::vector<PlanFinding> check(Model const& model, Plan const& plan) {
  Findings findings;
  check_model(model, plan, findings);
  check_sizes(plan, findings);
  if (!findings.empty())
    return findings;
  check_tensor_parallel(model, plan, findings);
  check_sequence_parallel(model, plan, findings);
  check_layout(model, plan, findings);
  if (!findings.empty())
    return findings;
  check_context_parallel(model, plan, findings);
  check_domino(model, plan, findings);
  check_tp_overlap(model, plan, findings);
  check_loss_chunks(plan, findings);
  check_layers(model, plan, findings);
  check_schedule(model, plan, findings);
  check_batch(plan, findings);
  check_positions(model, plan, findings);
  if (static_cast<std::int64_t>(plan.pp) * plan.chunks <= model.layers + 2)
    check_recompute(model, plan, findings);
  check_tp_bits(model, plan, findings);
  check_states(plan, findings);
  return findings;
}

} // namespace foreplan
