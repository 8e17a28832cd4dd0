#include "engine/fold.hpp"

#include "engine/partition.hpp"
#include "engine/segment.hpp"
#include "timing/collectives/demand.hpp"
#include "timing/copies.hpp"
#include "timing/kernels.hpp"
#include "timing/kernels/cpu_adam.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace foreplan {

namespace {

class Folder {
public:
  Folder(Program const& program, Cluster const& cluster, FoldOptions options)
      : program_(program), cluster_(cluster), options_(options),
        partition_(partition(program, cluster, options.unfold)) {
    if (Seconds const issue = program.plan.execution.issue; issue > Seconds(0))
      cluster_.profile.issue = issue;
  }

  Folding run() {
    find_representatives();
    fold_links();
    fold_communicators();
    for (std::size_t index = 0; index < representatives_.size(); ++index)
      fold_class(index);
    result_.segments = options_.segments;
    return std::move(result_);
  }

private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void find_representatives() {
    representatives_.assign(at(partition_.rank_classes), -1);
    ranks_in_class_.assign(at(partition_.rank_classes), 0);
    std::int64_t const stands_for = program_.plan.dp / partition_.dp_period;
    for (std::size_t i = 0; i < partition_.ranks.size(); ++i) {
      std::size_t const index = at(partition_.rank_class[i]);
      ranks_in_class_[index] += stands_for;
      if (representatives_[index] < 0)
        representatives_[index] = static_cast<std::int32_t>(i);
    }
  }

  void fold_links() {
    result_.program.links.resize(at(partition_.link_classes));
    for (std::size_t i = partition_.links.size(); i-- > 0;) {
      Link const link = partition_.links[i];
      result_.program.links[at(partition_.link_class[i])] = {fmt::format("{} {}", to_string(link.kind), link.index),
                                                             capacity(cluster_, link)};
    }
  }

  // Members and links of each communicator class: a link of a class carries the sum over the class's communicators.
  void fold_communicators() {
    auto const count = at(partition_.communicator_classes);
    result_.program.communicators.resize(count);
    links_of_.resize(count);
    example_.assign(count, -1);
    std::vector<std::int32_t> example_link(at(partition_.link_classes), -1);
    for (std::size_t i = 0; i < partition_.links.size(); ++i)
      if (example_link[at(partition_.link_class[i])] < 0)
        example_link[at(partition_.link_class[i])] = static_cast<std::int32_t>(i);
    for (std::size_t c = 0; c < partition_.communicators.size(); ++c) {
      CommunicatorInstance const& instance = partition_.communicators[c];
      std::size_t const index = at(instance.class_index);
      if (example_[index] < 0) {
        example_[index] = static_cast<std::int32_t>(c);
        result_.program.communicators[index].name = name_of(instance);
      }
      auto& members = result_.program.communicators[index].members;
      for (std::int32_t member : instance.members)
        if (std::int32_t const rank_class = partition_.rank_class[at(member)];
            std::find(members.begin(), members.end(), rank_class) == members.end())
          members.push_back(rank_class);
      for (auto const& [link, multiplicity] : instance.links)
        if (example_link[at(partition_.link_class[at(link)])] == link)
          add_link(links_of_[index], partition_.link_class[at(link)], multiplicity);
    }
    drop_private_links();
  }

  static void add_link(std::vector<LinkUse>& uses, std::int32_t link, std::int32_t multiplicity) {
    auto const found = std::find_if(uses.begin(), uses.end(), [&](LinkUse const& use) { return use.link == link; });
    if (found == uses.end())
      uses.push_back({link, multiplicity});
    else
      found->multiplicity += multiplicity;
  }

  // A link that one communicator alone uses is always free for it, as it runs one transfer at a time: if it can carry
  // the communicator's rate, the rate cap says all there is to say.
  void drop_private_links() {
    std::vector<int> users(at(partition_.link_classes), 0);
    for (auto const& uses : links_of_)
      for (LinkUse const& use : uses)
        ++users[at(use.link)];
    for (std::size_t c = 0; c < links_of_.size(); ++c) {
      BytesPerSecond const rate = partition_.communicators[at(example_[c])].unit_rate;
      std::erase_if(links_of_[c], [&](LinkUse const& use) {
        BytesPerSecond const needed = rate * use.multiplicity;
        return users[at(use.link)] == 1 && needed <= result_.program.links[at(use.link)].capacity * (1 + 1e-12);
      });
    }
  }

  std::string name_of(CommunicatorInstance const& instance) const {
    if (Group const* group = std::get_if<Group>(&instance.what))
      return fmt::format("{}{} of {} ranks", to_string(group->axes), group->pipeline_ends ? " ends" : "",
                         instance.layout.members);
    if (std::holds_alternative<HostWork>(instance.what))
      return fmt::format("{}", to_string(instance.stream));
    Channel const& channel = std::get<Channel>(instance.what);
    return fmt::format("{} from stage {} to {}",
                       channel.what == Channel::What::activation ? "activations" : "gradients", channel.from.value(),
                       channel.to.value());
  }

  // ------------------------------------------------------------------------------------------------------ one rank class

  void fold_class(std::size_t index) {
    std::int32_t const representative = representatives_[index];
    Rank const rank = partition_.ranks[at(representative)];
    stage_ = &program_.stages[at(coordinate_of(program_.plan, rank).pp)];
    representative_ = representative;
    speed_ = compute_speed(cluster_, rank);
    layer_blocks_.clear();
    segments_.clear();
    segment_blocks_.clear();
    op_blocks_.clear();
    use_of_.assign(at(stage_->next_op), -1);
    result_.program.classes.push_back({fmt::format("stage {}", stage_->stage.value()), ranks_in_class_[index], {}, {}});
    result_.classes.push_back({stage_->stage, rank, ranks_in_class_[index], {}});
    std::vector<bool> const contended = options_.segments ? contended_slots() : std::vector<bool>();
    for (std::size_t e = 0; e < stage_->elements.size(); ++e) {
      auto const element = static_cast<std::int32_t>(e);
      if (Op const* op = std::get_if<Op>(&stage_->elements[e]))
        add_op(*op, element);
      else
        add_slot(std::get<Slot>(stage_->elements[e]), element, options_.segments && !contended[e]);
    }
  }

  // Slots that a segment cannot stand for. Those beside which data-parallel transfers may run are few, whatever the number
  // of micro-batches; where the tensor-parallel transfers are shared, or run on into the next layer, all.
  std::vector<bool> contended_slots() const {
    std::vector<bool> contended(stage_->elements.size(), false);
    if (layers_overlap() || layer_transfers_are_shared()) {
      contended.assign(stage_->elements.size(), true);
      return contended;
    }
    // Data-parallel transfers are under way from their issue until a compute op waits for them or for a later one.
    std::vector<OpId> open;
    for (std::size_t e = 0; e < stage_->elements.size(); ++e) {
      Op const* op = std::get_if<Op>(&stage_->elements[e]);
      if (op == nullptr) {
        contended[e] = !open.empty();
      } else if (op->stream == Stream::dp || op->stream == Stream::replica) {
        open.push_back(op->id);
      } else if (op->stream == Stream::compute) {
        for (OpId wait : op->waits)
          if (auto const found = std::find(open.begin(), open.end(), wait); found != open.end())
            open.erase(open.begin(), found + 1);
      }
    }
    return contended;
  }

  bool layers_overlap() const {
    return std::any_of(stage_->layers.begin(), stage_->layers.end(), [&](StageLayer const& layer) {
      if (layer.program < 0)
        return false;
      auto const& breaks = breaks_[at(layer.program)];
      return std::any_of(breaks.begin(), breaks.end(), [](PassBreaks const& at) { return !at.none(); });
    });
  }

  // Whether the transfers inside the class's layers (of tensor and context parallelism) depend on more than the class itself
  // does: on other classes in the group, or on other transfers that may run over the same links beside them.
  bool layer_transfers_are_shared() const {
    for (std::int32_t index : partition_.communicators_of_rank[at(representative_)]) {
      CommunicatorInstance const& own = partition_.communicators[at(index)];
      if (!std::holds_alternative<Group>(own.what) || !is_of_layers(own.stream))
        continue;
      if (result_.program.communicators[at(own.class_index)].members.size() > 1)
        return true;
      for (std::size_t other = 0; other < links_of_.size(); ++other)
        if (std::cmp_not_equal(other, own.class_index) && may_run_beside_layers(other) &&
            have_common_link(links_of_[at(own.class_index)], links_of_[other]))
          return true;
    }
    return false;
  }

  // Data-parallel transfers do so in slots that are known (contended_slots). Those inside the class's own layers are part of
  // its segments, and for its own transfers to other stages its layers wait, where these are synchronous.
  bool may_run_beside_layers(std::size_t communicator_class) const {
    Stream const stream = stream_of_class(communicator_class);
    if (stream == Stream::dp || stream == Stream::replica)
      return false;
    std::vector<std::int32_t> const& members = result_.program.communicators[communicator_class].members;
    auto const self = static_cast<std::int32_t>(result_.program.classes.size()) - 1;
    if (std::find(members.begin(), members.end(), self) == members.end())
      return true;
    Plan const& plan = program_.plan;
    bool const waits = plan.p2p == P2p::synchronous && !splits_backward(plan.schedule);
    return is_of_layers(stream) ? members.size() > 1 : !waits;
  }

  static bool is_of_layers(Stream stream) { return stream == Stream::tp || stream == Stream::cp; }

  Stream stream_of_class(std::size_t communicator_class) const {
    CommunicatorInstance const& instance = partition_.communicators[at(example_[communicator_class])];
    return std::holds_alternative<Channel>(instance.what) ? Stream::send_activation : instance.stream;
  }

  static bool have_common_link(std::vector<LinkUse> const& a, std::vector<LinkUse> const& b) {
    return std::any_of(a.begin(), a.end(), [&](LinkUse const& use) {
      return std::any_of(b.begin(), b.end(), [&](LinkUse const& other) { return use.link == other.link; });
    });
  }

  void add_use(std::int32_t block, UseOrigin origin, std::vector<OpId> const& waits = {}) {
    RankClass& rank_class = result_.program.classes.back();
    Use use{block, static_cast<std::int32_t>(rank_class.waits.size()), static_cast<std::int32_t>(waits.size())};
    for (OpId wait : waits)
      rank_class.waits.push_back(use_of_[wait.index()]);
    rank_class.uses.push_back(use);
    result_.classes.back().uses.push_back(origin);
  }

  std::int32_t last_use() const { return static_cast<std::int32_t>(result_.program.classes.back().uses.size()) - 1; }

  void add_op(Op const& op, std::int32_t element) {
    add_use(op_block(op), {element, -1}, op.waits);
    use_of_[op.id.index()] = last_use();
  }

  void add_slot(Slot const& slot, std::int32_t element, bool as_segment) {
    if (as_segment) {
      add_use(segment_block(slot), {element, layer_of(slot, 0)});
    } else {
      for (LayerPiece const& piece : pieces_of(*stage_, slot, breaks_)) {
        std::int32_t const block = layer_block(stage_->layers[at(piece.layer)].program, slot.kind, piece);
        if (!result_.program.blocks[at(block)].items.empty()) // an embedding has no W
          add_use(block, {element, piece.layer});
      }
    }
    use_of_[slot.id.index()] = last_use();
  }

  std::int32_t add_block(Block block, BlockOrigin origin) {
    result_.program.blocks.push_back(std::move(block));
    result_.blocks.push_back(origin);
    return static_cast<std::int32_t>(result_.program.blocks.size()) - 1;
  }

  // Step-level ops that ask for the same thing share a block.
  std::int32_t op_block(Op const& op) {
    auto const alike = [&](std::pair<Op const*, std::int32_t> const& known) {
      Op const& other = *known.first;
      return other.kind == op.kind && other.stream == op.stream && other.reads == op.reads &&
             other.writes == op.writes && other.host_sync == op.host_sync && other.group == op.group &&
             other.channel == op.channel;
    };
    if (auto const found = std::find_if(op_blocks_.begin(), op_blocks_.end(), alike); found != op_blocks_.end())
      return found->second;
    Item item = item_of(op, operands_of(*stage_, op));
    item.host_sync = op.host_sync;
    std::int32_t const block = add_block({{std::move(item)}}, {.op = &op});
    op_blocks_.emplace_back(&op, block);
    return block;
  }

  std::int32_t layer_block(int program, SlotKind kind, LayerPiece const& piece) {
    auto const [found, is_new] = layer_blocks_.try_emplace({program, kind, piece.first, piece.last}, -1);
    if (!is_new)
      return found->second;
    LayerProgram const& layer = program_.layer_programs[at(program)];
    std::vector<Op> const& ops = ops_of(layer, kind);
    Block block;
    for (std::size_t i = piece.first; i < piece.last; ++i) {
      Item item = item_of(ops[i], operands_of(layer, ops[i]));
      for (OpId wait : ops[i].waits)
        item.waits.push_back(wait == entry ? wait_for_entry : wait_in_piece(ops, piece, wait));
      block.items.push_back(std::move(item));
    }
    return found->second = add_block(std::move(block), {.layer_program = &layer, .kind = kind, .first = piece.first});
  }

  // An op of an earlier piece of the same layer stands for what its stream held when this piece was issued.
  static std::int32_t wait_in_piece(std::vector<Op> const& ops, LayerPiece const& piece, OpId wait) {
    std::int32_t const position = position_of(ops, wait);
    return std::cmp_less(position, piece.first) ? wait_for_last(static_cast<std::uint8_t>(ops[at(position)].stream))
                                                : position - static_cast<std::int32_t>(piece.first);
  }

  std::int32_t whole_layer_block(int program, SlotKind kind) {
    std::size_t const size = ops_of(program_.layer_programs[at(program)], kind).size();
    return layer_block(program, kind, {-1, 0, size});
  }

  static std::int32_t position_of(std::vector<Op> const& ops, OpId id) {
    auto const found = std::find_if(ops.begin(), ops.end(), [&](Op const& op) { return op.id == id; });
    return static_cast<std::int32_t>(found - ops.begin());
  }

  Item item_of(Op const& op, Operands const& operands) {
    Item item;
    item.stream = static_cast<std::uint8_t>(op.stream);
    item.demand = static_cast<std::int32_t>(result_.program.demands.size());
    result_.program.demands.push_back(is_communication(op.kind) ? communication_demand(op, operands, item)
                                      : is_host_work(op.stream)
                                          ? host_demand(op, operands, item)
                                          : kernel_demand(op, operands, cluster_.profile, speed_));
    if (!options_.interference)
      result_.program.demands.back().sm_share = result_.program.demands.back().memory_bandwidth_share = 0;
    return item;
  }

  CommunicatorInstance const* communicator_of(Op const& op) const {
    for (std::int32_t index : partition_.communicators_of_rank[at(representative_)]) {
      CommunicatorInstance const& instance = partition_.communicators[at(index)];
      Group const* group = std::get_if<Group>(&instance.what);
      Channel const* channel = std::get_if<Channel>(&instance.what);
      bool const is_its = is_collective(op.kind)
                              ? group != nullptr && *group == op.group && instance.stream == op.stream
                          : is_communication(op.kind)
                              ? channel != nullptr && *channel == op.channel
                              : group == nullptr && channel == nullptr && instance.stream == op.stream;
      if (is_its)
        return &instance;
    }
    return nullptr;
  }

  Demand communication_demand(Op const& op, Operands const& operands, Item& item) const {
    CommunicatorInstance const& instance = *communicator_of(op);
    if (instance.layout.members == 1)
      return {Seconds(0), Seconds(0), ComputeDemand{}, 0, 0, Evidence::datasheet};
    item.communicator = instance.class_index;
    Demand demand = is_collective(op.kind)
                        ? collective_demand(op, operands, cluster_, instance.layout, instance.unit_rate)
                        : point_to_point_demand(op, operands, cluster_, instance.same_node, instance.unit_rate);
    std::get<TransferDemand>(demand.device).phases[0].flows[0].links = links_of_[at(instance.class_index)];
    return demand;
  }

  // A copy, or the host's Adam: a transfer of one rank over its host's links.
  Demand host_demand(Op const& op, Operands const& operands, Item& item) const {
    CommunicatorInstance const& instance = *communicator_of(op);
    item.communicator = instance.class_index;
    Demand demand = op.kind == OpKind::adam ? cpu_adam_demand(cluster_, cpu_adam(operands))
                                            : copy_demand(cluster_, copy_path(op.stream), bytes_of(*operands.reads[0]));
    std::get<TransferDemand>(demand.device).phases[0].flows[0].links = links_of_[at(instance.class_index)];
    return demand;
  }

  CpuAdam cpu_adam(Operands const& operands) const {
    int const cores = cluster_.profile.node.host ? cluster_.profile.node.host->cores : 1;
    return {operands.reads[0]->elements(), static_cast<int>(size_of(operands.reads[0]->dtype)),
            static_cast<int>(size_of(operands.writes[3]->dtype)), std::max(1, cores / cluster_.profile.node.devices)};
  }

  static Bytes bytes_of(Tensor const& tensor) {
    return Bytes(static_cast<double>(tensor.elements() * size_of(tensor.dtype)));
  }

  // ----------------------------------------------------------------------------------------------------------- segments

  Segment const& segment_of_layer(int program, SlotKind kind) {
    auto const [found, is_new] = segments_.try_emplace({program, kind});
    if (is_new) {
      auto const block = at(whole_layer_block(program, kind));
      found->second = segment_of(result_.program, result_.program.blocks[block], result_.blocks[block]);
    }
    return found->second;
  }

  std::int32_t segment_block(Slot const& slot) {
    auto const [found, is_new] = segment_blocks_.try_emplace({slot.first, slot.last, slot.kind}, -1);
    if (!is_new)
      return found->second;
    Segment whole;
    for (int i = 0; i < slot.last - slot.first; ++i) {
      int const layer = layer_of(slot, i);
      Segment const& part = segment_of_layer(stage_->layers[at(layer)].program, slot.kind);
      whole = i == 0 ? part : compose(whole, part);
    }
    Demand demand;
    demand.issue = whole.host;
    demand.lead = whole.cold - whole.device;
    demand.device = ComputeDemand{whole.device};
    if (options_.interference && whole.device > Seconds(0)) {
      demand.memory_bandwidth_share = whole.busy_bandwidth / whole.device.value();
      demand.sm_share = whole.busy_multiprocessors / whole.device.value();
    }
    Item item;
    item.stream = compute_stream;
    item.demand = static_cast<std::int32_t>(result_.program.demands.size());
    result_.program.demands.push_back(std::move(demand));
    BlockOrigin origin{.layer_program = &program_.layer_programs[at(stage_->layers[at(layer_of(slot, 0))].program)],
                       .kind = slot.kind,
                       .op = nullptr,
                       .compute = whole.compute,
                       .exposed_tp = whole.exposed_tp,
                       .hidden_tp = whole.hidden_tp,
                       .exposed_cp = whole.exposed_cp,
                       .hidden_cp = whole.hidden_cp};
    return found->second = add_block({{std::move(item)}}, origin);
  }

  Program const& program_;
  BreaksOfLayers breaks_ = breaks_of(program_);
  Cluster cluster_; // with the plan's own time to issue an op, where it has one
  FoldOptions options_;
  Partition partition_;
  Folding result_;
  std::vector<std::int32_t> representatives_; // by class: position in partition_.ranks
  std::vector<std::int64_t> ranks_in_class_;
  std::vector<std::vector<LinkUse>> links_of_; // by communicator class
  std::vector<std::int32_t> example_;          // by communicator class: one of its instances
  // of the class being folded
  StageProgram const* stage_ = nullptr;
  std::int32_t representative_ = 0;
  double speed_ = 1;
  std::vector<std::int32_t> use_of_;                                                         // by OpId: its last use
  std::map<std::tuple<int, SlotKind, std::size_t, std::size_t>, std::int32_t> layer_blocks_; // by piece
  std::map<std::pair<int, SlotKind>, Segment> segments_;
  std::map<std::tuple<int, int, SlotKind>, std::int32_t> segment_blocks_;
  std::vector<std::pair<Op const*, std::int32_t>> op_blocks_;
};

} // namespace

Folding fold(Program const& program, Cluster const& cluster, FoldOptions options) {
  return Folder(program, cluster, options).run();
}

} // namespace foreplan
