#include "model/hugging_face.hpp"
#include "model/size_in_name.hpp"
#include "plan/plan_checker.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace foreplan;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  return fuzz(data, size, [](JsonReader const& reader) {
    Model const model = read_hugging_face_config(reader);
    if (parameter_count(model) <= 0 || count_active_parameters(model).total() > parameter_count(model))
      std::abort();
    (void)training_flops_per_token(model, model.max_positions);
    (void)warn_of_name(model);
    Plan plan;
    plan.sequence_length = plan.global_batch = 16;
    plan.tp = 2;
    (void)check(model, plan);
  });
}
