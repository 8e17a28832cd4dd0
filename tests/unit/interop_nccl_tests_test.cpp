#include "interop/nccl_tests.hpp"

#include "io/input_error.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

TEST_CASE("nccl-tests: mpirun's tags, also inside a line; ranks, nodes and device from the list", "[nccl_tests]") {
  std::string const text = R"([1,0]<stdout>:# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor)
[1,0]<stdout>:#  Rank  0 Group  0 Pid   11 on host-a device  0 [0x00] NVIDIA H100 80GB HBM3
[1,0]<stdout>:#  Rank  1 Group  0 Pid   12 on ho[1,0]<stdout>:st-b device  0 [0x00] NVIDIA H100 80GB HBM3
[1,0]<stdout>:#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
[1,0]<stdout>:        1024           256     float     sum      -1    31.44    0.03    0.03      0    32.30    0.03    0.03    N/A
[1,0]<stdout>:   536870912     134217728     float     sum      -1    11163  192.37  192.37      0  1.0e+05  191.70  191.70      0
)";
  std::vector<NcclTestsRun> const runs = read_nccl_tests_text(text, "log");
  REQUIRE(runs.size() == 1);
  NcclTestsRun const& run = runs[0];
  CHECK(run.op == CollectiveOp::all_reduce); // 2 (n - 1) / n = 1 of two ranks
  CHECK(run.ranks == 2);
  CHECK(run.nodes == 2);
  CHECK(run.device == "NVIDIA H100 80GB HBM3");
  REQUIRE(run.points.size() == 2);
  CHECK(run.points[0].bytes == 1024);
  CHECK(*run.points[0].out_of_place == Approx(31.44e-6));
  CHECK(*run.points[1].out_of_place == Approx(11163e-6));
  CHECK(*run.points[1].in_place == Approx(0.1));
}

TEST_CASE("nccl-tests: old tables have no root; bus over algorithm bandwidth tells operation and ranks",
          "[nccl_tests]") {
  // 2 (n - 1) / n = 1.97915: n = 2 / (2 - 1.97915) = 96.
  std::string const reduce =
      "   536870912     134217728     float     sum   2984.6  179.88  356.01  1e-07   2979.7  180.18  356.60  1e-07\n";
  NcclTestsRun const all_reduce = read_nccl_tests_text(reduce, "log").at(0);
  CHECK(all_reduce.op == CollectiveOp::all_reduce);
  CHECK(all_reduce.ranks == 96);
  // (n - 1) / n = 0.875 without a reduction: 8 ranks.
  std::string const gather = "   536870912      16777216     float    none      -1   1402.0  382.93  335.06      0   "
                             "1402.0  382.93  335.06      0\n";
  NcclTestsRun const all_gather = read_nccl_tests_text(gather, "log").at(0);
  CHECK(all_gather.op == CollectiveOp::all_gather);
  CHECK(all_gather.ranks == 8);
  CHECK(*all_gather.points[0].out_of_place == Approx(1402e-6));
}

TEST_CASE("nccl-tests: JSON", "[nccl_tests]") {
  std::string const text = R"({"version": 2, "args": ["./build/alltoall_perf", "-b", "8"], "nccl_version": 22902,
    "devices": [{"rank": 0, "hostname": "a", "device_info": "NVIDIA B200"}, {"rank": 1, "hostname": "a", "device_info": "NVIDIA B200"}],
    "results": [{"size": 1024, "count": 128, "type": "float", "redop": "none", "root": "    -1",
                 "out_of_place": {"time": 12.5, "alg_bw": 0.08, "bus_bw": 0.04, "nwrong": null},
                 "in_place": {"time": "nan", "alg_bw": 0, "bus_bw": 0, "nwrong": 0}}]})";
  NcclTestsRun const run = read_nccl_tests_text(text, "log.json").at(0);
  CHECK(run.op == CollectiveOp::all_to_all);
  CHECK(run.ranks == 2);
  CHECK(run.nodes == 1);
  CHECK(run.device == "NVIDIA B200");
  CHECK(*run.points.at(0).out_of_place == Approx(12.5e-6));
  CHECK_FALSE(run.points.at(0).in_place);
}

TEST_CASE("rccl-tests: JSON and CSV have a row for each size and place", "[nccl_tests]") {
  std::string const json = R"([
    {"numCycle": 0, "name": "AllReduce", "nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1, "size": 1024,
     "type": "float", "redop": "sum", "inPlace": 0, "time": 30.5, "algBw": 0.03, "busBw": 0.06, "wrong": "0"},
    {"numCycle": 0, "name": "AllReduce", "nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1, "size": 1024,
     "type": "float", "redop": "sum", "inPlace": 1, "time": 31.5, "algBw": 0.03, "busBw": 0.06, "wrong": "0"}])";
  std::string const csv =
      "numCycle,collective,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
      "0,AllReduce,2,16,8,1,1024,float,sum,0,30.5,0.03,0.06,0\n"
      "0,AllReduce,2,16,8,1,1024,float,sum,1,31.5,0.03,0.06,0\n";
  for (std::string const& text : {json, csv}) {
    NcclTestsRun const run = read_nccl_tests_text(text, "log").at(0);
    CHECK(run.op == CollectiveOp::all_reduce);
    CHECK(run.ranks == 16);
    CHECK(run.nodes == 2);
    REQUIRE(run.points.size() == 1);
    CHECK(*run.points[0].out_of_place == Approx(30.5e-6));
    CHECK(*run.points[0].in_place == Approx(31.5e-6));
  }
}

TEST_CASE("nccl-tests: what has no row is refused in one line", "[nccl_tests]") {
  CHECK_THROWS_AS(read_nccl_tests_text("nothing here\n", "log"), InputError);
  CHECK_THROWS_AS(read_nccl_tests_text("{\"results\": 3}", "log"), InputError);
  CHECK_THROWS_AS(read_nccl_tests_text("{", "log"), InputError);
  CHECK_THROWS_AS(read_nccl_tests_text("[1, 2]", "log"), InputError);
  CHECK_THROWS_AS(read_nccl_tests("/does/not/exist"), InputError);
}
