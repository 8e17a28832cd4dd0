#include "report/details.hpp"

#include <nlohmann/json.hpp>

namespace foreplan {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(std::vector<MemoryMoment> const& moments) {
  Json json = Json::array();
  for (MemoryMoment const& moment : moments) {
    Json use;
    for (std::size_t i = 0; i < moment.use.by_category.size(); ++i)
      use[std::string(to_string(static_cast<Category>(i))) + "_B"] = moment.use.by_category[i];
    json.push_back({{"moment", moment.what},
                    {"use", use},
                    {"peak_B", moment.peak},
                    {"start_s", moment.start.value()},
                    {"end_s", moment.end.value()}});
  }
  return json;
}

} // namespace

nlohmann::ordered_json to_json(Details const& details) {
  Json passes = Json::array(), memory = Json::array(), ranks = Json::array();
  for (PassSpan const& pass : details.passes)
    passes.push_back({{"stage", pass.stage.value()},
                      {"kind", std::string(1, letter(pass.kind))},
                      {"chunk", pass.chunk.value()},
                      {"micro_batch", pass.micro_batch.value()},
                      {"start_s", pass.start.value()},
                      {"end_s", pass.end.value()}});
  for (std::vector<MemoryMoment> const& moments : details.memory)
    memory.push_back(to_json(moments));
  for (RankPlace const& place : details.ranks)
    ranks.push_back(
        {{"rank", place.rank.value()}, {"tp", place.tp}, {"dp", place.dp}, {"pp", place.pp}, {"node", place.node}});
  return {{"passes", passes}, {"memory", memory}, {"ranks", ranks}};
}

} // namespace foreplan
