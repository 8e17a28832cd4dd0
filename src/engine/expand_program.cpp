#include "engine/expand_program.hpp"

#include "engine/expand.hpp"
#include "timing/collectives/ring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace foreplan {

namespace {

class Expander {
public:
  Expander(Program const& program, Cluster const& cluster, RingForm form)
      : program_(program), cluster_(cluster), form_(form),
        folding_(fold(program, cluster, {.unfold = true, .interference = false})), result_(folding_.program) {}

  FoldedProgram run() {
    for (std::size_t i = 0; i < result_.links.size(); ++i)
      links_[result_.links[i].name] = static_cast<std::int32_t>(i);
    for (std::size_t c = 0; c < folding_.classes.size(); ++c)
      class_of_[folding_.classes[c].representative] = static_cast<std::int32_t>(c);
    for (std::size_t c = 0; c < folding_.classes.size(); ++c)
      expand_class(c);
    return std::move(result_);
  }

private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  // A class's uses with its collectives replaced. A step-level collective becomes three uses: one that waits, its steps,
  // and one that the host may have to wait for.
  void expand_class(std::size_t index) {
    RankClass const old = folding_.program.classes[index];
    RankClass& rank_class = result_.classes[index];
    rank_class.uses.clear();
    rank_class.waits.clear();
    std::vector<std::int32_t> new_use;
    blocks_.clear();
    rank_ = folding_.classes[index].representative;
    for (Use const& use : old.uses) {
      std::vector<std::int32_t> waits;
      for (std::int32_t w = 0; w < use.wait_count; ++w)
        waits.push_back(new_use[at(old.waits[at(use.first_wait + w)])]);
      Op const* op = folding_.blocks[at(use.block)].op;
      bool const in_parts = form_ == RingForm::steps && op != nullptr && ring_of(*op);
      if (in_parts) {
        Item const& item = folding_.program.blocks[at(use.block)].items[0];
        add_use(rank_class, nothing_on(item.stream, false), waits);
        add_use(rank_class, expanded(use.block), {});
        add_use(rank_class, nothing_on(item.stream, item.host_sync), {});
      } else {
        add_use(rank_class, expanded(use.block), waits);
      }
      new_use.push_back(static_cast<std::int32_t>(rank_class.uses.size()) - 1);
    }
  }

  static void add_use(RankClass& rank_class, std::int32_t block, std::vector<std::int32_t> const& waits) {
    rank_class.uses.push_back(
        {block, static_cast<std::int32_t>(rank_class.waits.size()), static_cast<std::int32_t>(waits.size())});
    rank_class.waits.insert(rank_class.waits.end(), waits.begin(), waits.end());
  }

  std::int32_t nothing_on(std::uint8_t stream, bool host_sync) {
    Item item;
    item.demand = static_cast<std::int32_t>(result_.demands.size());
    item.stream = stream;
    item.host_sync = host_sync;
    result_.demands.emplace_back();
    result_.blocks.push_back({{std::move(item)}});
    return static_cast<std::int32_t>(result_.blocks.size()) - 1;
  }

  std::int32_t expanded(std::int32_t block) {
    auto const [found, is_new] = blocks_.try_emplace(block, -1);
    if (!is_new)
      return found->second;
    BlockOrigin const& origin = folding_.blocks[at(block)];
    Block const& old = folding_.program.blocks[at(block)];
    Block result;
    std::vector<std::int32_t> new_item;
    for (std::size_t i = 0; i < old.items.size(); ++i) {
      Item item = old.items[i];
      for (std::int32_t& wait : item.waits)
        wait = wait < 0 ? wait : new_item[at(wait)];
      Op const& op = op_of(origin, i);
      if (std::optional<Ring> const ring = ring_of(op))
        new_item.push_back(add_ring(result, std::move(item), op, *ring));
      else {
        result.items.push_back(std::move(item));
        new_item.push_back(static_cast<std::int32_t>(result.items.size()) - 1);
      }
    }
    result_.blocks.push_back(std::move(result));
    return found->second = static_cast<std::int32_t>(result_.blocks.size()) - 1;
  }

  std::int32_t add_ring(Block& block, Item item, Op const& op, Ring const& ring) {
    if (form_ == RingForm::transfer) {
      Demand demand = result_.demands[at(item.demand)];
      demand.device = fluid_ring(ring);
      item.demand = static_cast<std::int32_t>(result_.demands.size());
      result_.demands.push_back(std::move(demand));
      block.items.push_back(std::move(item));
      return static_cast<std::int32_t>(block.items.size()) - 1;
    }
    auto const [found, is_new] = steps_.try_emplace({&op, ring.members[0]});
    if (is_new)
      found->second = add_ring_steps(result_, ring);
    auto const self = std::find(ring.members.begin(), ring.members.end(), class_of_.at(rank_));
    // The host pays for the collective as a whole, when it issues it.
    std::int32_t const begin = static_cast<std::int32_t>(block.items.size());
    std::int32_t const last = append_ring_steps(block, ring, found->second,
                                                static_cast<std::size_t>(self - ring.members.begin()), item.waits);
    Demand issue;
    issue.issue = result_.demands[at(item.demand)].issue;
    issue.lead = result_.demands[at(item.demand)].lead;
    block.items[at(begin)].demand = static_cast<std::int32_t>(result_.demands.size());
    result_.demands.push_back(issue);
    return last;
  }

  // The ring of a collective over tp or dp on this rank; nothing for other ops and for groups of one.
  std::optional<Ring> ring_of(Op const& op) {
    bool const is_no_ring = op.kind == OpKind::all_to_all || op.kind == OpKind::ring_shift; // one step as it is
    if (!is_collective(op.kind) || is_no_ring || op.group.axes.contains(Axis::pp))
      return std::nullopt;
    std::vector<Rank> const members = group_of(program_.plan, rank_, op.group.axes);
    if (members.size() == 1)
      return std::nullopt;
    Ring ring;
    bool crosses_nodes = false;
    double rate = 1e30;
    std::map<std::int32_t, std::int32_t> load;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Rank const next = members[(i + 1) % members.size()];
      ring.members.push_back(class_of_.at(members[i]));
      ring.to_next.emplace_back();
      crosses_nodes = crosses_nodes || node_of(cluster_, members[i]) != node_of(cluster_, next);
      for (LinkShare const& share : transfer_links(cluster_, members[i], next)) {
        std::int32_t const link = link_index(share.link);
        ring.to_next.back().push_back({link, share.multiplicity});
        load[link] += share.multiplicity;
        rate = std::min(rate, result_.links[at(link)].capacity.value() / load[link]);
      }
    }
    Tensor const& tensor = tensor_of(op, op.kind == OpKind::all_gather ? op.writes[0] : op.reads[0]);
    ring.bytes = Bytes(static_cast<double>(tensor.elements() * size_of(tensor.dtype)));
    ring.rounds = static_cast<int>(members.size() - 1) * (op.kind == OpKind::all_reduce ? 2 : 1);
    Node const& node = cluster_.profile.node;
    ring.latency = crosses_nodes ? node.network_latency : node.scale_up_latency;
    ring.rate_cap = BytesPerSecond(rate);
    ring.stream = static_cast<std::uint8_t>(op.stream);
    std::uint8_t const pair = op.stream == Stream::tp ? 0 : op.stream == Stream::dp ? 2 : 4;
    ring.send_stream = static_cast<std::uint8_t>(stream_count + 1 + pair);
    ring.receive_stream = static_cast<std::uint8_t>(stream_count + 2 + pair);
    return ring;
  }

  Tensor const& tensor_of(Op const& op, TensorId id) const {
    if (op.part == Part::step)
      return program_.stages[at(coordinate_of(program_.plan, rank_).pp)][id];
    for (LayerProgram const& layer : program_.layer_programs)
      for (SlotKind kind : slot_kinds)
        if (std::vector<Op> const& ops = ops_of(layer, kind);
            !ops.empty() && &op >= ops.data() && &op < ops.data() + ops.size())
          return layer[id];
    return program_.layer_programs[0][id];
  }

  std::int32_t link_index(Link link) {
    std::string const name = fmt::format("{} {}", to_string(link.kind), link.index);
    auto const [found, is_new] = links_.try_emplace(name, static_cast<std::int32_t>(result_.links.size()));
    if (is_new)
      result_.links.push_back({name, capacity(cluster_, link)});
    return found->second;
  }

  Program const& program_;
  Cluster const& cluster_;
  RingForm form_;
  Folding folding_;
  FoldedProgram result_;
  std::map<std::string, std::int32_t> links_; // by name
  std::map<Rank, std::int32_t> class_of_;
  std::map<std::pair<Op const*, std::int32_t>, RingSteps> steps_; // by op and the ring's first member
  // of the class being expanded
  Rank rank_;
  std::map<std::int32_t, std::int32_t> blocks_;
};

} // namespace

FoldedProgram expand_program(Program const& program, Cluster const& cluster, RingForm form) {
  return Expander(program, cluster, form).run();
}

} // namespace foreplan
