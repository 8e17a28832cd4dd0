#include "tests/catch.hpp"

#include "model/read_model.hpp"

using namespace foreplan;

namespace {

Model read(std::string const& name) { return read_model(std::string(FOREPLAN_ROOT) + "/models/" + name + ".json"); }

std::string const small = R"({"format": "foreplan model 1", "name": "small", "layers": 2, "hidden": 8, "heads": 4,
  "kv_heads": 2, "ffn": 16, "vocabulary": 32, "max_positions": 64, "norm": "rms_norm", "activation": "swiglu",
  "positions": "rotary", "biases": false, "tied_embeddings": false, "dropout": false})";

Model read_changed(std::string const& from, std::string const& to) {
  std::string text = small;
  text.replace(text.find(from), from.size(), to);
  return read_model(JsonReader::read_text(text, "small.json", "foreplan model 1"));
}

} // namespace

// Published counts.
TEST_CASE("parameters of the models in models/") {
  CHECK(parameter_count(read("llama-3.1-8b")) == 8'030'261'248);
  CHECK(parameter_count(read("llama-3.1-70b")) == 70'553'706'496);
  CHECK(parameter_count(read("llama-3.1-405b")) == 405'853'388'800);

  // GPT-3 has 174 604 259 328 with its own vocabulary of 50257; the file's is padded to 51200.
  Model gpt = read("gpt-3-175b");
  gpt.vocabulary = 50257;
  CHECK(parameter_count(gpt) == 174'604'259'328);
}

TEST_CASE("parameters of a small model by hand") {
  // block: qkv 8 * (4 + 2*2) * 2 = 128, out 64, gate, up and down 3 * 8 * 16 = 384, norms 16: 592
  // two blocks 1184, final norm 8, embedding and head 2 * 32 * 8 = 512
  Model model = read_changed("\"small\"", "\"small\"");
  CHECK(parameter_count(model) == 1704);
  // biases: qkv 16 + out 8 + gate and up 32 + down 8 = 64 a block
  model.biases = true;
  CHECK(parameter_count(model) == 1704 + 128);
}

TEST_CASE("head_size is given or hidden / heads") {
  CHECK(read_changed("\"heads\": 4", "\"heads\": 4, \"head_size\": 6").head_size == 6);
  CHECK(read_changed("\"heads\": 4", "\"heads\": 2").head_size == 4);
}

TEST_CASE("a model that cannot be is refused") {
  auto refused = [](std::string const& from, std::string const& to, std::string const& part) {
    try {
      (void)read_changed(from, to);
    } catch (InputError const& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(part) != std::string::npos);
      return;
    }
    FAIL(to << " was accepted");
  };
  refused("\"kv_heads\": 2", "\"kv_heads\": 3", "kv_heads: 3 must divide heads = 4");
  refused("\"heads\": 4", "\"heads\": 6", "heads: 6 must divide hidden = 8");
  refused("\"layers\": 2", "\"layers\": 0", "layers: 0 must be a whole number from 1");
  refused("\"heads\": 4", "\"heads\": 4, \"head_size\": 3", "needs an even head size");
  refused("\"layers\"", "\"layer\"", "layer: 2 is an unknown key; did you mean \"layers\"?");
  refused("rms_norm", "rmsnorm", "did you mean \"rms_norm\"?");
  refused("model 1", "model 2", "must be \"foreplan model 1\"");
}
