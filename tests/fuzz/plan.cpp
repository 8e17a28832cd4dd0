#include "plan/plan_checker.hpp"
#include "plan/read_plan.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace foreplan;

namespace {

Model small() {
  Model model;
  model.name = "small";
  model.layers = 8;
  model.hidden = 64;
  model.heads = model.kv_heads = 8;
  model.head_size = 8;
  model.ffn = 128;
  model.vocabulary = 1024;
  model.max_positions = 1024;
  return model;
}

} // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  return fuzz(data, size, [](JsonReader const& reader) {
    Plan const plan = read_plan(reader);
    (void)check(small(), plan);
    // What is written is read back as the same plan.
    if (!(read_plan(JsonReader::read_text(plan_json(plan), "written.json", "foreplan plan 1")) == plan))
      std::abort();
  });
}
