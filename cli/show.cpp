// foreplan show model FILE, foreplan show hardware FILE: what Foreplan understood of an input, and what follows from it.
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cluster/links.hpp"
#include "cluster/read_profile.hpp"
#include "io/input_error.hpp"
#include "io/suggestion.hpp"
#include "model/read_model.hpp"
#include "model/size_in_name.hpp"
#include "plan/plan_checker.hpp"
#include "report/table.hpp"
#include "units/text.hpp"
#include "validate/calibrate/collectives_profile.hpp"
#include "validate/calibrate/kernels_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>

namespace foreplan {

namespace {

// ---------------------------------------------------------------------------------------------------------------- model

std::string grouped(std::int64_t number) { // 8030261248 -> "8 030 261 248"
  std::string text = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), " ");
  return text;
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "GELU";
    case Activation::swiglu: return "SwiGLU";
    case Activation::relu: return "ReLU";
    case Activation::geglu: return "GEGLU";
  }
  return "?";
}

std::string_view name_of(Positions positions) {
  switch (positions) {
    case Positions::learned: return "learned";
    case Positions::rotary: return "rotary";
    case Positions::alibi: return "ALiBi";
  }
  return "?";
}

std::string attention_line(Model const& model) {
  if (model.latent_attention) {
    LatentAttention const& latent = *model.latent_attention;
    return fmt::format(
        "{} heads, latent: queries through {}, keys and values through {}; heads of {} + {} rotary, values {}",
        model.heads, latent.query_rank, latent.kv_rank, latent.head_size, latent.rotary_head_size,
        latent.value_head_size);
  }
  std::string text = fmt::format("{} heads of {}, {} for keys and values", model.heads, model.head_size,
                                 model.kv_heads);
  if (model.query_key_norm != QueryKeyNorm::none)
    text += ", queries and keys normed";
  if (model.attention_sinks)
    text += ", sinks";
  if (model.sliding_window)
    text += fmt::format(", a window of {} tokens in {} layers", model.sliding_window->tokens,
                        model.sliding_window->layers);
  return text;
}

std::string mlp_line(Model const& model) {
  if (!model.experts)
    return fmt::format("{} wide, {}", model.ffn, name_of(model.activation));
  Experts const& experts = *model.experts;
  std::string text = fmt::format("{} experts {} wide, {} a token, {}", experts.count, experts.ffn, experts.per_token,
                                 name_of(model.activation));
  if (experts.shared_ffn > 0)
    text += fmt::format("; {} wide for every token besides", experts.shared_ffn);
  if (experts.first_dense_layers > 0)
    text += fmt::format("; the first {} layers plain and {} wide", experts.first_dense_layers, model.ffn);
  return text;
}

std::string details_line(Model const& model) {
  std::string text = model.norm == NormKind::layer_norm ? "layer norm" : "RMS norm";
  if (model.norm_placement != NormPlacement::before)
    text += model.norm_placement == NormPlacement::after ? " after branches" : " before and after branches";
  text += fmt::format(", {} positions", name_of(model.positions));
  text += model.biases ? ", biases" : model.qkv_biases ? ", biases on queries, keys and values" : ", no biases";
  text += model.tied_embeddings ? ", tied embeddings" : ", untied embeddings";
  if (model.embedding_norm)
    text += ", embeddings normed";
  if (model.parallel_residual)
    text += ", attention and MLP in parallel";
  if (model.dropout)
    text += ", dropout";
  return text;
}

std::string parameters_table(Model const& model) {
  ParameterCounts const all = count_parameters(model), active = count_active_parameters(model);
  std::vector<std::vector<std::string>> rows{{"parameters", "total", "share", "active"}};
  auto add = [&](char const* part, std::int64_t total, std::int64_t used) {
    if (total > 0)
      rows.push_back({part, grouped(total),
                      fmt::format("{:.1f} %", 100.0 * static_cast<double>(total) / static_cast<double>(all.total())),
                      grouped(used)});
  };
  add("embedding", all.embedding, active.embedding);
  add("attention", all.attention, active.attention);
  add("MLP", all.mlp, active.mlp);
  add("experts, router", all.experts, active.experts);
  add("norms", all.norms, active.norms);
  add("head", all.head, active.head);
  add("all", all.total(), active.total());
  return table(rows);
}

std::string simulation_line(Model const& model, std::int64_t sequence_length) {
  Plan plan; // the smallest there is: what is wrong with it is wrong with the model
  plan.sequence_length = sequence_length;
  plan.global_batch = 1;
  std::vector<PlanFinding> const findings = check(model, plan);
  return findings.empty() ? "" : "Note: " + findings[0].text + "\n";
}

void show_model(std::string const& path, cxxopts::ParseResult const& parsed) {
  Model const model = read_model(path);
  std::int64_t const sequence_length = parsed.count("seq-len") > 0 ? whole_number(parsed, "seq-len", 1, 1 << 26)
                                                                   : std::min<std::int64_t>(model.max_positions, 8192);
  Flops const flops = training_flops_per_token(model, sequence_length);
  std::cout
      << fmt::format("{}: {} layers, hidden {}, vocabulary {}, up to {} tokens\n", model.name, model.layers,
                     model.hidden, model.vocabulary, model.max_positions)
      << "  attention  " << attention_line(model) << "\n  MLP        " << mlp_line(model) << "\n  other      "
      << details_line(model) << "\n\n"
      << parameters_table(model) << '\n'
      << fmt::format("Training takes {} a token in sequences of {}.\n", to_string(flops), sequence_length)
      << "Convention: 6 flops a parameter in matrix products (head included, input embedding, norms and biases not;\n"
         "of experts those a token passes), and the causal half of attention; recomputed work is not counted.\n";
  if (std::string const warning = warn_of_name(model); !warning.empty())
    std::cout << "Warning: " << warning << ".\n";
  std::cout << simulation_line(model, sequence_length);
}

// ------------------------------------------------------------------------------------------------------------- hardware

std::string_view name_of(Evidence kind) {
  switch (kind) {
    case Evidence::datasheet: return "datasheet";
    case Evidence::fitted: return "fitted";
    case Evidence::measured: return "measured";
  }
  return "?";
}

std::string sources_list(HardwareProfile const& profile) {
  std::size_t widest_key = 0, widest_value = 0;
  for (Source const& source : profile.sources) {
    widest_key = std::max(widest_key, source.key.size());
    widest_value = std::max(widest_value, source.value.size());
  }
  std::string text = "Every number, what kind it is of and where it comes from:\n\n";
  for (Source const& source : profile.sources)
    text += wrapped(fmt::format("  {:<{}}  {:>{}}  {:<9}  ", source.key, widest_key, source.value, widest_value,
                                name_of(source.kind)),
                    source.source);
  return text;
}

std::string_view name_of(FabricKind kind) {
  switch (kind) {
    case FabricKind::infiniband: return "InfiniBand";
    case FabricKind::roce: return "RoCE";
    case FabricKind::efa: return "EFA";
  }
  return "?";
}

// "0 1 2 3", or "0 1 .. 71" when there are many.
std::string some(std::string_view prefix, int first, int count) {
  constexpr int most = 8;
  std::string text;
  for (int i = 0; i < std::min(count, most); ++i) {
    int const shown = count > most && i == most - 1 ? count - 1 : i;
    text += fmt::format("{}{}{}{}", i == 0 ? "" : " ", count > most && i == most - 1 ? ".. " : "", prefix,
                        first + shown);
  }
  return text;
}

std::string scale_up_lines(Node const& node) {
  std::string const rate = to_string(node.scale_up);
  switch (node.topology) {
    case ScaleUp::switched:
      return fmt::format("  +-- {} --+\n  |   each device: one port of {} each way into {}; any pair has all of it\n",
                         some("G", 0, node.devices), rate,
                         node.switches > 0 ? fmt::format("{} switches", node.switches) : "switches");
    case ScaleUp::full_mesh:
      return fmt::format(
          "  +-- {} --+\n  |   full mesh, no switch: {} each way between a pair, {} to all others together\n",
          some("G", 0, node.devices), to_string(node.scale_up / std::max(1, node.devices - 1)), rate);
    case ScaleUp::hybrid_cube_mesh:
      return fmt::format("  +-- {} --+\n  |   hybrid cube mesh, no switch: {} each way a device\n",
                         some("G", 0, node.devices), rate);
    case ScaleUp::pcie:
      return fmt::format("  +-- {} --+\n  |   through PCIe: {} each way a device\n", some("G", 0, node.devices), rate);
  }
  return "";
}

std::string host_lines(Host const& host) {
  std::string text = fmt::format("  |   host: {}, {} sockets, {} cores, {} at {}\n", host.processor, host.sockets,
                                 host.cores, to_string(host.memory), to_string(host.memory_bandwidth));
  text += fmt::format("  |   device to host: {} each way{}\n", to_string(host.link),
                      host.devices_per_link > 1 ? fmt::format(", shared by {} devices", host.devices_per_link) : "");
  if (host.drives > 0)
    text += fmt::format("  |   NVMe: {} x {}, read {}, write {} each\n", host.drives, to_string(host.drive_capacity),
                        to_string(host.drive_read), to_string(host.drive_write));
  return text;
}

std::string node_drawing(Node const& node) {
  std::string text = fmt::format("Node: {} devices (G), {} NICs (N)\n\n", node.devices, node.nics);
  text += scale_up_lines(node);
  if (node.host)
    text += host_lines(*node.host);
  text += fmt::format("  +-- {} --+  {} each way a NIC", some("N", 0, node.nics), to_string(node.nic));
  if (node.devices > node.nics)
    text += fmt::format(", {} devices a NIC (G{} by N0)", node.devices / node.nics,
                        node.devices / node.nics == 2 ? "0 and G1"
                                                      : fmt::format("0 to G{}", node.devices / node.nics - 1));
  if (node.devices_per_pcie_switch > 0)
    text += fmt::format("; a PCIe switch for {} device{}", node.devices_per_pcie_switch,
                        node.devices_per_pcie_switch > 1 ? "s with their NICs" : " with its NIC");
  return text + "\n";
}

std::string fabric_drawing(Cluster const& cluster) {
  Node const& node = cluster.profile.node;
  std::string text = fmt::format("Fabric: {} nodes, {} devices", cluster.nodes, cluster.devices());
  if (!cluster.profile.fabric)
    return text + "; taken as one switch between all NICs\n";
  Fabric const& fabric = *cluster.profile.fabric;
  int const per_leaf = fabric.nodes_per_leaf > 0 ? std::min(fabric.nodes_per_leaf, cluster.nodes) : cluster.nodes;
  int const units = (cluster.nodes + per_leaf - 1) / per_leaf;
  int const leaves_of_unit = fabric.rails ? node.nics : 1;
  text += fmt::format("; {}{}\n\n", name_of(fabric.kind),
                      fabric.rails ? ", rails: NIC i of every node on leaf i of its unit" : "");
  if (units > 1)
    text += fmt::format("        spine switches\n            |  leaf to spines {} : 1{}\n", fabric.oversubscription,
                        fabric.oversubscription > 1 ? " oversubscribed" : ", non-blocking");
  for (int unit = 0; unit < std::min(units, 2); ++unit) {
    int const first = unit * per_leaf;
    text += fmt::format("  unit {}: {} leaf {}\n            |\n      {}\n", unit,
                        some("L", unit * leaves_of_unit, leaves_of_unit), leaves_of_unit > 1 ? "switches" : "switch",
                        some("node ", first, std::min(per_leaf, cluster.nodes - first)));
  }
  if (units > 2)
    text += fmt::format("  ... {} units of {} nodes in all\n", units, per_leaf);
  return text;
}

// ---------------------------------------------------------------------------------------------------------- its links

std::int64_t number_in(std::string_view text, std::string const& group) {
  std::int64_t value = -1;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0)
    throw InputError(fmt::format("--group {}: \"{}\" is no rank; valid: 0,1,2,3 or 0-7 or 0-63:8 (each eighth) or tp8",
                                 group, text));
  return value;
}

void add_range(std::vector<Rank>& ranks, std::string_view part, std::string const& group, int devices) {
  std::size_t const colon = part.find(':');
  std::int64_t const step = colon == std::string_view::npos ? 1 : number_in(part.substr(colon + 1), group);
  part = part.substr(0, colon);
  std::size_t const dash = part.find('-');
  std::int64_t const first = number_in(part.substr(0, dash), group);
  std::int64_t const last = dash == std::string_view::npos ? first : number_in(part.substr(dash + 1), group);
  if (last >= devices || first > last || step < 1)
    throw InputError(fmt::format("--group {}: ranks must ascend from 0 to {}, the devices of the cluster (--nodes)",
                                 group, devices - 1));
  for (std::int64_t rank = first; rank <= last; rank += step)
    ranks.push_back(Rank(rank));
}

// "tp8" and "tp 8": the first eight ranks, which is where a plan puts a tensor-parallel group.
std::vector<Rank> ranks_of(std::string const& group, int devices) {
  std::vector<Rank> ranks;
  if (group.starts_with("tp")) {
    std::size_t const at = group.find_first_not_of(' ', 2);
    std::int64_t const size = number_in(at == std::string::npos ? "" : std::string_view(group).substr(at), group);
    add_range(ranks, fmt::format("0-{}", std::max<std::int64_t>(size, 1) - 1), group, devices);
  } else {
    for (std::size_t begin = 0; begin <= group.size();) {
      std::size_t const end = std::min(group.find(',', begin), group.size());
      add_range(ranks, std::string_view(group).substr(begin, end - begin), group, devices);
      begin = end + 1;
    }
  }
  std::vector<Rank> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (ranks.size() < 2 || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw InputError(fmt::format("--group {}: must be two or more different ranks", group));
  return ranks;
}

std::string link_rows(Cluster const& cluster, std::map<Link, int> const& passes) {
  constexpr std::size_t most_rows = 16;
  std::vector<std::vector<std::string>> rows{{"link", "flows", "rate"}};
  for (auto const& [link, flows] : passes) {
    if (rows.size() <= most_rows)
      rows.push_back({describe(cluster, link), fmt::format("{}", flows), to_string(capacity(cluster, link))});
  }
  std::string text = table(rows);
  if (passes.size() > most_rows)
    text += fmt::format("and {} more\n", passes.size() - most_rows);
  return text;
}

std::string group_links(Cluster const& cluster, std::string const& group) {
  std::vector<Rank> const ranks = ranks_of(group, cluster.devices());
  std::map<Link, int> passes; // of a ring: each member sends to the next
  BytesPerSecond slowest(1e30);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (Link const link : path(cluster, ranks[i], ranks[(i + 1) % ranks.size()]))
      ++passes[link];
  for (auto const& [link, flows] : passes)
    slowest = std::min(slowest, capacity(cluster, link) / flows);
  return fmt::format("Group {}: {} ranks; a ring through them, each sending to the next, runs at {}.\n\n", group,
                     ranks.size(), to_string(slowest)) +
         link_rows(cluster, passes);
}

// ----------------------------------------------------------------------------------------------------- its parameters

std::string bands_text(KernelParameters const& kernels) {
  std::string text;
  for (std::size_t i = 0; i < kernel::class_count; ++i)
    text += fmt::format("{}{} {}", i == 0 ? "  " : ", ", kernel_class_names()[i],
                        kernels.band[i] > 0 ? fmt::format("{:.1f} %", 100 * kernels.band[i]) : "not measured");
  return text + '\n';
}

std::string kernels_text(HardwareProfile const& profile) {
  if (!profile.kernels)
    return "Kernels: no fitted model; one efficiency a class of kernels, those of \"efficiency\".\n";
  KernelParameters const& kernels = *profile.kernels;
  std::size_t fitted = 0;
  for (std::size_t i = 0; i < kernel::count; ++i)
    fitted += is_moved(kernels, i) ? 1 : 0;
  return fmt::format("Kernels of the {}: {} parameters fitted, {} at their priors; clock under load {:.3g} of the data "
                     "sheet's.\n\n",
                     profile.chip.name, fitted, kernel::count - fitted, kernels.clock_under_load) +
         kernel_parameter_table(kernels) +
         "\nRows: measured kernels whose time follows the value. Bands, two thirds of left-out families of shapes "
         "within:\n" +
         bands_text(kernels);
}

std::string collectives_text(HardwareProfile const& profile) {
  if (!profile.collectives)
    return "Collectives: no fitted model; rings at the efficiencies of scale-up links and network.\n";
  CollectiveModel const& model = *profile.collectives;
  std::array<int, 2> fitted{}, all{}; // of the scale-up fabric, of the network
  for (std::size_t i = 0; i < collective::count; ++i) {
    std::size_t const network = collective_parameters()[i].network ? 1 : 0;
    ++all[network];
    fitted[network] += is_moved(model, i) ? 1 : 0;
  }
  return fmt::format(
             "Collectives by {}: of {} parameters of the scale-up fabric {} are fitted, of {} of the network {}.\n\n",
             to_string(model.library), all[0], fitted[0], all[1], fitted[1]) +
         collective_parameter_table(model) +
         fmt::format("\nPoints: measured ones whose time changes by more than 1 % when the value is a quarter larger. "
                     "Band, two "
                     "thirds of left-out curves within: {:.1f} %\n",
                     100 * model.band);
}

void show_parameters(HardwareProfile const& profile) {
  std::cout << profile.name << "\n\n" << kernels_text(profile) << '\n' << collectives_text(profile);
}

void show_hardware(std::string const& path, cxxopts::ParseResult const& parsed) {
  if (parsed.count("parameters") > 0) {
    show_parameters(read_profile(path));
    return;
  }
  Cluster const cluster{read_profile(path), static_cast<int>(whole_number(parsed, "nodes", 1, 100'000)), {}};
  std::string const links = parsed.count("group") > 0 ? group_links(cluster, parsed["group"].as<std::string>()) + "\n"
                                                      : "";
  std::cout << cluster.profile.name << ": " << cluster.profile.chip.name << "\n\n"
            << node_drawing(cluster.profile.node) << '\n'
            << fabric_drawing(cluster) << '\n'
            << links << sources_list(cluster.profile);
}

constexpr char const* usage =
    "usage: foreplan show model FILE [--seq-len TOKENS]\n"
    "       foreplan show hardware FILE [--nodes N] [--group 0,1,2,3 | 0-63:8 | tp8] [--parameters]\n\n"
    "FILE: models/*.json or a Hugging Face config.json; hardware_profiles/*.json\n";

} // namespace

int run_show(std::vector<std::string> const& arguments) {
  if (arguments.empty() || arguments[0] == "--help") {
    (arguments.empty() ? std::cerr : std::cout) << usage;
    return arguments.empty() ? 2 : 0;
  }
  static constexpr std::string_view kinds[] = {"model", "hardware"};
  if (std::find(std::begin(kinds), std::end(kinds), arguments[0]) == std::end(kinds))
    throw InputError(fmt::format("show {}: cannot be shown; {}", arguments[0], suggestion(arguments[0], kinds)));
  bool const is_model = arguments[0] == "model";
  cxxopts::Options options("foreplan show " + arguments[0] + " FILE");
  auto text = [] { return cxxopts::value<std::string>(); };
  if (is_model)
    options.add_options()("seq-len", "tokens of a sequence (default: the model's longest, at most 8192)", text());
  else
    options.add_options()("nodes", "nodes of the cluster", text()->default_value("1"))(
        "group", "also print the links of these ranks: 0,1,2,3 or 0-63:8 (each eighth) or tp8",
        text())("parameters", "print the fitted parameters alone: value, prior, range, what moved it");
  bool const has_file = arguments.size() > 1 && !arguments[1].starts_with("--");
  auto const parsed = parse(options, {arguments.begin() + (has_file ? 2 : 1), arguments.end()});
  if (!parsed)
    return 0;
  if (!has_file)
    throw InputError(fmt::format("show {}: no FILE given", arguments[0]));
  if (is_model)
    show_model(arguments[1], *parsed);
  else
    show_hardware(arguments[1], *parsed);
  return 0;
}

} // namespace foreplan
