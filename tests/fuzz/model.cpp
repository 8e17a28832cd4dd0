#include "model/read_model.hpp"
#include "model/size_in_name.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace foreplan;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  return fuzz(data, size, [](JsonReader const& reader) {
    Model const model = read_model(reader);
    if (parameter_count(model) <= 0 || count_active_parameters(model).total() > parameter_count(model))
      std::abort();
    (void)training_flops_per_token(model, model.max_positions);
    (void)warn_of_name(model);
  });
}
