#include "model/size_in_name.hpp"
#include "tests/catch.hpp"

using namespace foreplan;

TEST_CASE("the size that a name claims") {
  CHECK(size_in_name("Llama-2-7B") == 7e9);
  CHECK(size_in_name("meta-llama/Llama-2-13b-hf") == 13e9);
  CHECK(size_in_name("GPT-3 175B") == 175e9);
  CHECK(size_in_name("qwen3-0.6b") == 0.6e9);
  CHECK(size_in_name("gpt2_350M") == 350e6);
  CHECK(size_in_name("Qwen3-235B-A22B") == 235e9);
  CHECK(!size_in_name("Mixtral-8x7B"));
  CHECK(!size_in_name("DeepSeek-V3"));
  CHECK(!size_in_name(""));
  CHECK(!size_in_name("-"));
  CHECK(!size_in_name("B"));
}

// 2 layers of hidden 8: some hundred parameters.
TEST_CASE("a name and a size that disagree") {
  Model model;
  model.layers = 2;
  model.hidden = 8;
  model.heads = model.kv_heads = 4;
  model.head_size = 2;
  model.ffn = 16;
  model.vocabulary = 32;
  model.name = "tiny-7B";
  CHECK(warn_of_name(model).find("tiny-7B says 7 billion") != std::string::npos);
  model.name = "tiny";
  CHECK(warn_of_name(model).empty());
}
