// Visitors of plan_fields.hpp that read them from JSON.
#pragma once

#include "io/json_reader.hpp"
#include "plan/words.hpp"

#include <type_traits>
#include <vector>

namespace foreplan {

// Lists the keys.
struct KeyLister {
  std::vector<std::string_view>& keys;
  template <class... Rest>
  void operator()(std::string_view key, Rest const&...) const {
    keys.push_back(key);
  }
};

// The value of a field.
template <class T>
void read_field(JsonReader const& value, T& field) {
  if constexpr (std::is_same_v<T, bool>)
    field = value.boolean();
  else if constexpr (std::is_same_v<T, Seconds>)
    field = value.quantity<Seconds>();
  else
    field = value.choice(words<T>);
}

template <class T, class Bound>
void read_field(JsonReader const& value, T& field, Bound least, Bound most) {
  if constexpr (std::is_same_v<T, double>) {
    field = value.number(static_cast<double>(least), static_cast<double>(most));
  } else if constexpr (std::is_same_v<T, std::vector<int>>) {
    field.clear();
    for (JsonReader const& element : value.elements())
      field.push_back(static_cast<int>(element.integer(least, most)));
  } else {
    field = static_cast<T>(value.integer(least, most));
  }
}

// Reads what is there; the other fields keep their values.
struct FieldReader {
  JsonReader const& reader;
  template <class T>
  void operator()(std::string_view key, T& field) const {
    if (auto const value = reader.find(key))
      read_field(*value, field);
  }
  template <class T, class Least, class Most>
  void operator()(std::string_view key, T& field, Least least, Most most) const {
    using Bound = std::conditional_t<std::is_same_v<T, double>, double, std::int64_t>;
    if (auto const value = reader.find(key))
      read_field(*value, field, static_cast<Bound>(least), static_cast<Bound>(most));
  }
};

} // namespace foreplan
