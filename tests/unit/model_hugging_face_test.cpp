#include "tests/catch.hpp"

#include "model/read_model.hpp"

#include <filesystem>
#include <set>

using namespace foreplan;

namespace {

std::string const folder = std::string(FOREPLAN_ROOT) + "/tests/data/hf_configs/";

Model read(std::string const& name) { return read_model(folder + name + ".json"); }

Model read_text(std::string const& text) { return read_model(JsonReader::read_text(text, "llama/config.json")); }

std::string error_of(std::string const& text) {
  try {
    (void)read_text(text);
  } catch (InputError const& error) {
    return error.what();
  }
  return "no error";
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::string const llama = R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
  "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 512})";

std::string llama_with(std::string const& key_and_value) {
  return llama.substr(0, llama.size() - 1) + ", " + key_and_value + "}";
}

struct Published {
  char const* file;
  std::int64_t total;
  std::int64_t active; // 0: as total
};

} // namespace

// Totals as published; variants' totals from algorithms.md 1.1, exact.
TEST_CASE("parameters of Hugging Face models are the published ones") {
  Published const published[] = {
      {"llama-2-7b-hf", 6'738'415'616, 0},
      {"llama-2-13b", 13'015'864'320, 0},
      {"llama-2-70b", 68'976'648'192, 0},
      {"llama-3.1-8b", 8'030'261'248, 0},
      {"llama-3.1-70b", 70'553'706'496, 0},
      {"llama-3.1-405b", 405'853'388'800, 0},
      {"llama-3.2-1b", 1'235'814'400, 0},
      {"codellama-34b-instruct-hf", 33'743'970'304, 0},
      {"mistral-7b-v0.1", 7'241'732'096, 0},
      {"mistral-7b-v0.3", 7'248'023'552, 0},
      {"phi-3-mini-4k-instruct", 3'821'079'552, 0},
      {"phi-3.5-mini", 3'821'079'552, 0},
      {"qwen2-1.5b", 1'543'714'304, 0},
      {"qwen2-7b", 7'615'616'512, 0},
      {"qwen2.5-3b", 3'085'938'688, 0},
      {"qwen2.5-7b-instruct", 7'615'616'512, 0},
      {"qwen2.5-14b", 14'770'033'664, 0},
      {"qwen2.5-32b", 32'763'876'352, 0},
      {"qwen3-0.6b", 596'049'920, 0},
      {"qwen3-8b", 8'190'735'360, 0},
      {"qwen3-14b", 14'768'307'200, 0},
      {"qwen3-32b", 32'762'123'264, 0},
      {"olmo2-32b", 32'234'279'936, 0},
      {"gemma-2b", 2'506'172'416, 0},
      {"gemma-2-27b", 27'227'128'320, 0},
      {"gemma-3-1b", 999'885'952, 0},
      {"stablelm-3b", 2'795'443'200, 0},
      {"gpt2", 124'439'808, 0},
      {"gpt-neox-20b", 20'554'567'680, 0},
      {"bloom-176b-subset", 176'247'271'424, 0},
      {"falcon-40b-subset", 41'303'293'952, 0},
      {"mixtral-8x7b-v0.1", 46'702'792'704, 12'879'925'248},
      {"mixtral-8x22b-v0.1", 140'620'634'112, 0},
      {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704},
      {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520},
      {"gpt-oss-20b", 20'914'757'184, 4'187'440'704},
      {"gpt-oss-120b", 116'829'156'672, 5'711'982'912},
      {"deepseek-moe", 16'375'728'128, 0},
      {"deepseek-v3", 671'026'419'200, 37'552'297'472},
      {"kimi-k2-instruct", 1'026'408'232'448, 32'861'500'928},
  };
  for (Published const& row : published) {
    INFO(row.file);
    Model const model = read(row.file);
    CHECK(parameter_count(model) == row.total);
    if (row.active > 0)
      CHECK(count_active_parameters(model).total() == row.active);
    else if (!model.experts)
      CHECK(count_active_parameters(model).total() == row.total);
  }
  // OPT's position table has 2050 rows, of which the first two are never used: 2 h less here.
  CHECK(parameter_count(read("opt-1.3b")) == 1'315'758'080 - 2 * 2048);
  CHECK(parameter_count(read("opt-13b")) == 12'853'473'280 - 2 * 5120);
  CHECK(parameter_count(read("opt-66b")) == 65'719'701'504 - 2 * 9216);
}

TEST_CASE("every collected config reads, or is refused for the key that it lacks") {
  std::set<std::string> refused;
  int all = 0;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json")
      continue;
    ++all;
    try {
      (void)read_model(entry.path().string());
    } catch (InputError const& error) {
      INFO(error.what());
      refused.insert(entry.path().stem().string());
      CHECK(contains(error.what(), "num_experts_per_tok: is missing"));
    }
  }
  CHECK(all == 45);
  CHECK(refused == std::set<std::string>{"deepseek-v2-subset"}); // SOURCES.md: num_experts_per_tok not seen
}

TEST_CASE("dimensions of families") {
  CHECK(read("llama-2-70b").kv_heads == 8); // grouped queries
  CHECK(read("gemma-2b").kv_heads == 1);    // multi-query
  Model const gemma = read("gemma-2b");
  CHECK(gemma.heads * gemma.head_size == 2048);
  CHECK(gemma.activation == Activation::geglu);
  CHECK(gemma.tied_embeddings); // by the family's default
  Model const small_qwen = read("qwen3-0.6b");
  CHECK(small_qwen.heads * small_qwen.head_size == 2048); // hidden is 1024
  CHECK(small_qwen.query_key_norm == QueryKeyNorm::per_head);
  CHECK(!read("qwen2-7b").sliding_window); // use_sliding_window is false
  CHECK(read("phi-3-mini-4k-instruct").sliding_window == SlidingWindow{2047, 32});
  CHECK(read("gemma-2-27b").sliding_window == SlidingWindow{4096, 23});
  CHECK(read("gemma-3-1b").sliding_window == SlidingWindow{512, 22}); // 26 blocks, each sixth sees all
  CHECK(read("gpt-oss-120b").sliding_window == SlidingWindow{128, 18});
  CHECK(!read("mistral-7b-v0.3").sliding_window); // null
  CHECK(read("gpt2").positions == Positions::learned);
  CHECK(read("gpt2").ffn == 3072);
  CHECK(read("gpt2").dropout);
  CHECK(read("gpt-neox-20b").parallel_residual);
  CHECK(read("bloom-176b-subset").positions == Positions::alibi);
  CHECK(read("deepseek-v3").experts == Experts{256, 8, 2048, 2048, 3, true});
  CHECK(read("deepseek-v3").latent_attention == LatentAttention{1536, 512, 128, 64, 128});
}

TEST_CASE("the name comes from the config or its path") {
  CHECK(read("llama-2-13b").name == "meta-llama/Llama-2-13b-hf");
  CHECK(read("llama-3.1-8b").name == "llama-3.1-8b");
  CHECK(read_text(llama).name == "llama"); // the folder of config.json
}

TEST_CASE("nulls are as good as absent, unknown keys are ignored") {
  Model const model = read_text(llama_with(R"("num_key_value_heads": null, "head_dim": null, "whatever": [1, {}])"));
  CHECK(model.kv_heads == 4);
  CHECK(model.head_size == 16);
  CHECK(error_of(R"({"model_type": "llama", "num_hidden_layers": null})") ==
        "llama/config.json: num_hidden_layers: null must be given");
}

// gemma-3-4b-it: its text_config leaves out what equals Gemma3TextConfig's defaults. 34 layers of hidden 2560, ffn 10240,
// 8 heads and 4 KV heads of 256: qkv 2560 * 16 * 256, out 8 * 256 * 2560, MLP 3 * 2560 * 10240, norms 4 * 2560 + 2 * 256;
// embedding 262208 * 2560 tied, final norm 2560.
TEST_CASE("the language model of a model with text_config") {
  Model const model = read_text(R"({"model_type": "gemma3", "vision_config": {"hidden_size": 1152},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                    "num_hidden_layers": 34, "sliding_window": 1024}})");
  std::int64_t const block = 2560 * 16 * 256 + 8 * 256 * 2560 + 3 * 2560 * 10240 + 4 * 2560 + 2 * 256;
  CHECK(parameter_count(model) == 34 * block + std::int64_t{262208} * 2560 + 2560);
  CHECK(model.tied_embeddings);
}

TEST_CASE("a config that cannot be is refused in one line") {
  CHECK(contains(error_of(R"({"model_type": "lama"})"), "did you mean \"llama\"?"));
  CHECK(error_of(R"({"model_type": "llama", "num_hidden_layers": 2})") == "llama/config.json: hidden_size: is missing");
  CHECK(contains(error_of(llama_with("\"num_key_value_heads\": 3")), "num_key_value_heads: 3 must divide heads = 4"));
  CHECK(contains(error_of(llama_with("\"hidden_act\": \"relu\"")), "hidden_act: \"relu\" is not an activation"));
  CHECK(contains(error_of(llama_with("\"head_dim\": 3")), "needs an even head size"));
  CHECK(contains(error_of(llama_with("\"attention_bias\": true")), "attention_bias: true is not supported"));
  CHECK(contains(error_of(R"({"hidden_size": 64})"), "format: is missing"));
}
