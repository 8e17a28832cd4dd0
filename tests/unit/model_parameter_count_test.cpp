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

  CHECK(parameter_count(read("llama-2-7b")) == 6'738'415'616);
  CHECK(parameter_count(read("llama-2-13b")) == 13'015'864'320);
  CHECK(parameter_count(read("llama-2-70b")) == 68'976'648'192);
  CHECK(parameter_count(read("phi-3-mini")) == 3'821'079'552);
  CHECK(parameter_count(read("mistral-7b")) == 7'248'023'552);
  CHECK(parameter_count(read("gpt-neox-20b")) == 20'554'567'680);
  CHECK(parameter_count(read("bloom-176b")) == 176'247'271'424);
  CHECK(parameter_count(read("mixtral-8x7b")) == 46'702'792'704);
  CHECK(parameter_count(read("qwen3-235b-a22b")) == 235'093'634'560);
  CHECK(parameter_count(read("deepseek-v3")) == 671'026'419'200);
  // 105 (12 h^2 + 13 h) + 2 h + (51200 + 2048) h with h = 20480; published as 530B, 0.1 % less.
  CHECK(parameter_count(read("mt-nlg-530b")) == 529'600'819'200);
  CHECK(parameter_count(read("mt-nlg-530b")) == Approx(530e9).epsilon(0.001));

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

TEST_CASE("the files in models/ are the models of Hugging Face") {
  auto same = [](std::string const& own, std::string const& other) {
    INFO(own);
    Model const a = read(own);
    Model const b = read_model(std::string(FOREPLAN_ROOT) + "/tests/data/hf_configs/" + other + ".json");
    CHECK(parameter_count(a) == parameter_count(b));
    CHECK(count_active_parameters(a).total() == count_active_parameters(b).total());
    CHECK(training_flops_per_token(a, 2048).value() == training_flops_per_token(b, 2048).value());
    CHECK(a.experts == b.experts);
    CHECK(a.latent_attention == b.latent_attention);
    CHECK(a.sliding_window == b.sliding_window);
    CHECK(a.activation == b.activation);
    CHECK(a.positions == b.positions);
    CHECK(a.norm == b.norm);
  };
  same("llama-2-7b", "llama-2-7b-hf");
  same("llama-2-13b", "llama-2-13b");
  same("llama-2-70b", "llama-2-70b");
  same("llama-3.1-8b", "llama-3.1-8b");
  same("llama-3.1-70b", "llama-3.1-70b");
  same("llama-3.1-405b", "llama-3.1-405b");
  same("phi-3-mini", "phi-3-mini-4k-instruct");
  same("mistral-7b", "mistral-7b-v0.3");
  same("mixtral-8x7b", "mixtral-8x7b-v0.1");
  same("deepseek-v3", "deepseek-v3");
  same("qwen3-235b-a22b", "qwen3-235b-a22b");
  same("gpt-neox-20b", "gpt-neox-20b");
  same("bloom-176b", "bloom-176b-subset");
}

// algorithms.md 1.1: Llama-3-8B at 8192 tokens, 6 * (6 979 321 856 + 525 336 576) + 6 * 32 * 4096 * 8192.
TEST_CASE("flops of a token") {
  Model const llama = read("llama-3.1-8b");
  CHECK(training_flops_per_token(llama, 8192).value() == 6.0 * 7'504'658'432 + 6.0 * 32 * 4096 * 8192);
  CHECK(training_flops_per_token(llama, 8192).value() == Approx(51.47e9).epsilon(1e-3));

  // Small model: block 128 + 64 + 384 = 576 in products, two blocks and the head 32 * 8: 1408.
  Model model = read_changed("\"small\"", "\"small\"");
  CHECK(training_flops_per_token(model, 10).value() == 6 * 1408 + 6 * 2 * 8 * 10);
  // A window of 4 in one of the two: a token sees 4 - 4^2 / (2 * 10) = 3.2 on average, not 5.
  model.sliding_window = SlidingWindow{4, 1};
  CHECK(training_flops_per_token(model, 10).value() == Approx(6 * 1408 + 6 * 8 * 10 + 6 * 8 * 6.4));
  CHECK(training_flops_per_token(model, 4).value() == 6 * 1408 + 6 * 2 * 8 * 4);
  // Experts of width 5 in the second block, 2 of 3 a token: its MLP's 384 become 2 * 3 * 8 * 5 and a router of 8 * 3.
  model.sliding_window.reset();
  model.experts = Experts{3, 2, 5, 0, 1, false};
  CHECK(training_flops_per_token(model, 10).value() == 6 * (1408 - 384 + 240 + 24) + 6 * 2 * 8 * 10);
  // Latent attention: query 8*3 + 3*4*(2+2), keys and values 8*(4+2) + 4*4*(2+3), out 4*3*8 for 128 + 64; head sizes 4 + 3.
  model.latent_attention = LatentAttention{3, 4, 2, 2, 3};
  std::int64_t const attention = 24 + 48 + 48 + 80 + 96;
  CHECK(training_flops_per_token(model, 10).value() ==
        static_cast<double>(6 * (1408 - 384 + 264 + 2 * (attention - 192)) + 3 * 2 * 4 * 7 * 10));
}

TEST_CASE("variants of a small model by hand") {
  Model model = read_changed("\"small\"", "\"small\"");
  ParameterCounts const plain = count_parameters(model);
  CHECK(plain.embedding == 256);
  CHECK(plain.head == 256);
  CHECK(plain.attention == 2 * 192);
  CHECK(plain.mlp == 2 * 384);
  CHECK(plain.norms == 5 * 8);
  model.qkv_biases = true; // (4 + 2 * 2) * 2 a block
  CHECK(parameter_count(model) == 1704 + 2 * 16);
  model.query_key_norm = QueryKeyNorm::per_head; // 2 * 2 a block
  CHECK(parameter_count(model) == 1704 + 2 * 16 + 2 * 4);
  model.query_key_norm = QueryKeyNorm::all_heads; // (4 + 2) * 2 a block
  CHECK(parameter_count(model) == 1704 + 2 * 16 + 2 * 12);
  model.norm_placement = NormPlacement::both; // two more norms of 8 a block
  CHECK(parameter_count(model) == 1704 + 2 * 16 + 2 * 12 + 2 * 16);
  model.experts = Experts{3, 2, 5, 4, 1, true}; // block 2: 3 * 120 + shared 96 + router 24 + 3 for the plain 384
  CHECK(count_parameters(model).experts == 483);
  CHECK(count_active_parameters(model).experts == 363);
  CHECK(count_parameters(model).mlp == 384);
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
  refused("\"layers\": 2", "\"layers\": 2, \"experts\": {\"count\": 4, \"per_token\": 8, \"ffn\": 4}",
          "experts.count: 4 must be at least the 8 that a token takes");
  refused("\"layers\": 2", "\"layers\": 2, \"experts\": {\"count\": 4}", "experts.per_token: is missing");
  refused("\"layers\": 2", "\"layers\": 2, \"sliding_window\": {\"tokens\": 4, \"layers\": 3}", "from 1 to 2");
  refused("rms_norm", "rmsnorm", "did you mean \"rms_norm\"?");
  refused("model 1", "model 2", "must be \"foreplan model 1\"");
}
