#include "planner/constraint.hpp"

#include "io/input_error.hpp"
#include "io/suggestion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace foreplan {

namespace {

struct Field {
  std::string_view name;
  std::int64_t (*value)(Plan const&);
  std::vector<std::string_view> words; // in the order of the enumeration; empty: a number
};

std::vector<Field> const& fields() {
  static std::vector<Field> const all{
      {"tp", [](Plan const& p) -> std::int64_t { return p.tp; }, {}},
      {"pp", [](Plan const& p) -> std::int64_t { return p.pp; }, {}},
      {"cp", [](Plan const& p) -> std::int64_t { return p.cp; }, {}},
      {"dp", [](Plan const& p) -> std::int64_t { return p.dp; }, {}},
      {"chunks", [](Plan const& p) -> std::int64_t { return p.chunks; }, {}},
      {"micro-batch", [](Plan const& p) { return p.micro_batch; }, {}},
      {"micro-batches", [](Plan const& p) { return p.micro_batches(); }, {}},
      {"zero", [](Plan const& p) -> std::int64_t { return p.zero_stage; }, {}},
      {"recompute",
       [](Plan const& p) { return static_cast<std::int64_t>(p.recompute); },
       {"none", "selective", "full"}},
      {"schedule",
       [](Plan const& p) { return static_cast<std::int64_t>(p.schedule); },
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"}},
      {"sequence-parallel", [](Plan const& p) -> std::int64_t { return p.sequence_parallel ? 1 : 0; }, {"off", "on"}},
      {"tp-overlap", [](Plan const& p) -> std::int64_t { return p.tp_overlap ? 1 : 0; }, {"off", "on"}},
      {"domino-slices", [](Plan const& p) -> std::int64_t { return p.domino_slices; }, {}},
      {"domino",
       [](Plan const& p) { return static_cast<std::int64_t>(p.domino); },
       {"paper", "inter_layer", "intra_layer"}},
  };
  return all;
}

constexpr std::pair<std::string_view, Constraint::Relation> relations[] = {
    {"!=", Constraint::Relation::not_equal},     {"<=", Constraint::Relation::less_equal},
    {">=", Constraint::Relation::greater_equal}, {"=", Constraint::Relation::equal},
    {"<", Constraint::Relation::less},           {">", Constraint::Relation::greater},
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  return text;
}

[[noreturn]] void fail(std::string const& option, std::string const& text, std::string const& rule) {
  throw InputError(fmt::format("{} {}: {}", option, text, rule));
}

Field const& field_named(std::string const& option, std::string const& text, std::string_view name) {
  std::vector<std::string_view> names;
  for (Field const& field : fields()) {
    if (field.name == name)
      return field;
    names.push_back(field.name);
  }
  fail(option, text, "no such field; " + suggestion(name, names));
}

std::int64_t value_of(std::string const& option, std::string const& text, Field const& field, std::string_view word) {
  if (!field.words.empty()) {
    auto const found = std::find(field.words.begin(), field.words.end(), word);
    if (found == field.words.end())
      fail(option, text, fmt::format("no such {}; {}", field.name, suggestion(word, field.words)));
    return found - field.words.begin();
  }
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size())
    fail(option, text, fmt::format("{} is compared with a whole number", field.name));
  return value;
}

bool holds(std::int64_t left, Constraint::Relation relation, std::int64_t right) {
  switch (relation) {
    case Constraint::Relation::equal: return left == right;
    case Constraint::Relation::not_equal: return left != right;
    case Constraint::Relation::less: return left < right;
    case Constraint::Relation::less_equal: return left <= right;
    case Constraint::Relation::greater: return left > right;
    case Constraint::Relation::greater_equal: return left >= right;
  }
  return false;
}

} // namespace

Constraint read_constraint(std::string const& option, std::string const& text) {
  std::size_t const at = text.find_first_of("!<>=");
  std::string_view rest = std::string_view(text).substr(std::min(at, text.size()));
  auto const relation = std::find_if(std::begin(relations), std::end(relations),
                                     [&](auto const& known) { return rest.starts_with(known.first); });
  if (relation == std::end(relations))
    fail(option, text, "must be a field, one of = != < <= > >=, and a value, as tp=8 or recompute!=full");
  Field const& field = field_named(option, text, trimmed(std::string_view(text).substr(0, at)));
  rest.remove_prefix(relation->first.size());
  bool const ordered = relation->second != Constraint::Relation::equal &&
                       relation->second != Constraint::Relation::not_equal;
  if (ordered && !field.words.empty())
    fail(option, text, fmt::format("{} has no order; use = or !=", field.name));
  return {field.value,          relation->second,    value_of(option, text, field, trimmed(rest)),
          option == "--forbid", option + " " + text, field.name};
}

bool allows(Constraint const& constraint, Plan const& plan) {
  return holds(constraint.field(plan), constraint.relation, constraint.value) != constraint.forbidden;
}

} // namespace foreplan
