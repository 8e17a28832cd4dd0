// What an engine runs: rank classes with streams of items, communicators between them, links that they share. Made from
// a program by fold(); made at random by tests. No strategy is known here.
//
// SEMANTICS (every engine; times in seconds from the step's beginning)
//  Host      Each class has one. It issues its items in order; item i is issued at h_i = h_(i-1) + issue_i. After an
//            item with host_sync the host waits until that item has ended.
//  Start     A device item may start when (a) the item before it on its stream has ended, (b) all items it waits for
//            have ended, (c) its host has begun to issue it at least `lead` ago: time >= h_(i-1) + lead_i.
//  Compute   Runs for `alone` seconds at speed 1.
//  Transfer  One node for all member classes of its communicator: the k-th item of the communicator in each member
//            class belongs to one transfer. A class enters a communicator on one stream only. The transfer starts when
//            every member may start, and ends for all at once. Its phases are those of the demand of the communicator's
//            first member; each member's own demand gives its issue, lead and shares.
//            Its phases follow each other; a phase is its latency (no links used), then its flows in parallel; the
//            phase ends when its last flow has. A member's stream is busy from its own arrival; it counts as running
//            (for interference) only from the transfer's start.
//  Speed     Of every running item x on a device, constant between events:
//              speed(x) = min(1 - sum of sm_share of the other running items,
//                             1 / max(1, sum of memory_bandwidth_share of all running items, x included)),
//            at least min_speed. A compute item progresses at speed(x). A flow's rate is bounded by rate_cap * (the least
//            speed among the transfer's members). Latencies are not slowed.
//  Links     Flows share links max-min fairly: rates are raised together until a link is full (sum of multiplicity *
//            rate = capacity) or a flow meets its bound; such flows are fixed and the others raised further.
//  Zero      An item of no device seconds, or a transfer without phases, ends the moment it starts.
//  End       When every item has ended. A program that cannot go on (items wait for each other) is an error that names
//            the first item of each stuck stream.
// Simultaneous events: no result depends on their order beyond rounding.
#pragma once

#include "timing/demand.hpp"
#include "units/quantity.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace foreplan {

inline constexpr double min_speed = 0.01; // shares that add up to more than everything slow an item, never stop it

struct LinkOrbit {
  std::string name; // "NIC out of stage 3"
  BytesPerSecond capacity;
};

// Targets of an item's waits.
inline constexpr std::int32_t wait_for_entry = -1; // the compute item issued last before this block began
// The item of a stream that was issued last before this block began.
constexpr std::int32_t wait_for_last(std::uint8_t stream) { return wait_for_entry - stream; }

struct Item {
  std::int32_t demand = 0;        // index into FoldedProgram::demands
  std::int32_t communicator = -1; // of a transfer; -1: compute
  std::uint8_t stream = 0;
  bool host_sync = false;          // only in blocks of one item
  std::vector<std::int32_t> waits; // earlier items of the same block by index, or wait_for_last(a stream)
};

// A straight run of items: a layer's forward or backward, a segment, or one step-level op.
struct Block {
  std::vector<Item> items;
};

// One use of a block in a class's issue order. `waits` (for blocks of one item) names earlier uses of the same class by
// position; what is waited for is the use's last item.
struct Use {
  std::int32_t block = 0;
  std::int32_t first_wait = 0; // into RankClass::waits
  std::int32_t wait_count = 0;
};

struct RankClass {
  std::string name;       // "stage 3"
  std::int64_t ranks = 1; // how many it stands for
  std::vector<Use> uses;  // in issue order
  std::vector<std::int32_t> waits;
};

struct Communicator {
  std::string name;                  // "tp of stage 3"
  std::vector<std::int32_t> members; // distinct classes
};

struct FoldedProgram {
  std::vector<LinkOrbit> links;
  std::vector<Demand> demands;
  std::vector<Communicator> communicators;
  std::vector<Block> blocks; // shared between classes; the streams number below stream_limit
  std::vector<RankClass> classes;
};

inline constexpr int stream_limit =
    22; // those of a program, and three pairs for the steps of rings (expand_program.hpp)
inline constexpr std::uint8_t compute_stream = 0;

} // namespace foreplan
