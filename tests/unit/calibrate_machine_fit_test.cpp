// Costs of ops: found again in rows made of them, written into a profile, and used by the timing.
#include "cluster/read_profile.hpp"
#include "io/json_reader.hpp"
#include "tests/catch.hpp"
#include "timing/collectives/demand.hpp"
#include "timing/kernels.hpp"
#include "validate/calibrate/machine_profile.hpp"

using namespace foreplan;

namespace {

std::vector<MeasuredOp> rows_of(OpCost const& cost, int members = 1) {
  std::vector<MeasuredOp> rows;
  for (double bytes : {1e5, 4e5, 1e6, 3e6, 7e6, 2e7, 6e7, 1e8})
    for (double depth : {0.0, 100.0, 1000.0}) { // flops a byte
      double const flops = cost.per_flop > 0 ? depth * bytes : 0;
      // an all-reduce of n members pays its fixed part 2 (n - 1) times
      double const steps = members > 1 ? 2.0 * (members - 1) : 1;
      rows.push_back(
          {cost.op, cost.dtype, flops, bytes, cost.seconds(flops, bytes) + (steps - 1) * cost.fixed, members});
    }
  return rows;
}

OpCost const product{.op = "linear_forward", .dtype = "bf16", .fixed = 5e-6, .per_flop = 2e-12, .per_byte = 1e-11};
OpCost const stream{
    .op = "add", .dtype = "fp32", .fixed = 2e-6, .per_byte = 1.25e-11, .cached = 8e6, .per_cold_byte = 2.5e-11};
OpCost const sum{.op = "all_reduce", .dtype = "bf16", .fixed = 1e-5, .per_byte = 2e-10};

MachineRows machine_rows() {
  MachineRows rows;
  for (OpCost const& cost : {product, stream})
    for (MeasuredOp const& row : rows_of(cost))
      rows.kernels.push_back(row);
  rows.communication = rows_of(sum, 2);
  rows.kernel_gap = 1e-6;
  rows.communication_gap = 5e-6;
  rows.triad = 2e10;
  rows.copy = rows.file_read = rows.file_write = 1e10;
  rows.base_memory = 1e8;
  rows.file_access = "io_uring";
  return rows;
}

HardwareProfile profile() {
  MachineRows const rows = machine_rows();
  MachineFacts const facts{
      .processor = "P", .cores = 2, .memory = 8e9, .ranks = 2, .threads = 1, .measured_by = "a \"test\""};
  return read_profile(
      JsonReader::read_text(machine_profile(facts, rows, fit_machine(rows)), "test", "foreplan hardware 1"));
}

Tensor tensor(std::vector<std::int64_t> shape, DType dtype) {
  Tensor result;
  result.shape = std::move(shape);
  result.dtype = dtype;
  return result;
}

} // namespace

TEST_CASE("a cost is found again in rows made of it", "[calibrate]") {
  for (OpCost const& made : {product, stream}) {
    OpCost const found = fit_op_cost(rows_of(made));
    CHECK(found.fixed == Approx(made.fixed));
    CHECK(found.per_flop == Approx(made.per_flop).margin(1e-18));
    CHECK(found.per_byte == Approx(made.per_byte));
    CHECK(found.cached == made.cached);
    CHECK(found.per_cold_byte == Approx(made.per_cold_byte).margin(1e-18));
    CHECK(found.band < 1e-6);
  }
  CHECK(fit_op_cost(rows_of(sum, 4)).fixed == Approx(sum.fixed));
}

TEST_CASE("an outlier among the rows moves a cost little", "[calibrate]") {
  std::vector<MeasuredOp> rows = rows_of(product);
  rows[4].seconds *= 3; // somebody else had the core
  CHECK(fit_op_cost(rows).per_flop == Approx(product.per_flop).epsilon(0.02));
}

TEST_CASE("the profile of a machine predicts what was measured", "[calibrate]") {
  HardwareProfile const machine = profile();
  REQUIRE(machine.ops);
  CHECK(machine.ops->costs.size() == 3);
  CHECK(find(*machine.ops, "add", "bf16") == nullptr);

  // 1024 x 512 times 512 x 256 in bf16: 2 * 1024 * 512 * 256 flops; 2 bytes each of 1024 * 512 + 512 * 256 + 1024 * 256
  Tensor const x = tensor({1024, 512}, DType::bf16), w = tensor({512, 256}, DType::bf16),
               y = tensor({1024, 256}, DType::bf16);
  Op op;
  op.kind = OpKind::linear_forward;
  double const seconds = product.seconds(2.0 * 1024 * 512 * 256, 2.0 * (1024 * 512 + 512 * 256 + 1024 * 256)) + 1e-6;
  Demand const demand = kernel_demand(op, {{&x, &w}, {&y}}, machine, 1);
  CHECK(std::get<ComputeDemand>(demand.device).alone.value() == Approx(seconds).epsilon(1e-3));
  CHECK(demand.evidence == Evidence::measured);
  CHECK(demand.memory_bandwidth_share <= 1);

  // an all-reduce of two: two steps, as many bytes on the wire as the buffer has
  op.kind = OpKind::all_reduce;
  Tensor const buffer = tensor({1 << 20}, DType::bf16);
  Cluster const cluster{machine, 1, {}};
  Demand const reduced = collective_demand(op, {{&buffer}, {&buffer}}, cluster,
                                           {.members = 2, .nodes = 1, .fewest_on_a_node = 2, .fewest_nics = 1},
                                           BytesPerSecond(1e10));
  CHECK(alone_seconds(reduced).value() == Approx(5e-6 + 2 * sum.fixed + 2.0 * (1 << 20) * sum.per_byte).epsilon(1e-3));
}

TEST_CASE("rows that the suite did not write are refused", "[calibrate]") {
  CHECK_THROWS_WITH(read_machine_rows("kernel,add,bf16\n"), Catch::Contains("kernel,add,bf16"));
  CHECK_THROWS_WITH(read_machine_rows("nonsense,1\n"), Catch::Contains("nonsense"));
  MachineRows const rows = read_machine_rows("triad,2e10\ncommunication,all_gather,fp32,4,100,0.5\nfile,a, b\n");
  CHECK(rows.triad == 2e10);
  CHECK(rows.communication.at(0).members == 4);
  CHECK(rows.file_access == "a, b");
}
