// Reads JSON with types, units and ranges. Every error is an InputError of one line: file, key path, value, rule, valid
// values. Comments are allowed; unknown and repeated keys, and nesting deeper than 64, are not.
#pragma once

#include "io/input_error.hpp"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foreplan {

// One value of a document that knows where it stands. A handle: it shares the document.
class JsonReader {
public:
  // The top-level object of a file, whose "format" must be the one given ("foreplan model 1"); an empty one asks for none.
  static JsonReader read_file(std::string const& path, std::string_view format);
  // The same from text; `name` stands for the file in errors.
  static JsonReader read_text(std::string_view text, std::string const& name, std::string_view format = {});

  void expect_format(std::string_view format) const;

  // Objects. expect_keys refuses all others ("format" is always allowed at the top).
  void expect_keys(std::initializer_list<std::string_view> keys) const { expect_keys(std::vector(keys)); }
  void expect_keys(std::vector<std::string_view> const& keys) const;
  [[nodiscard]] JsonReader operator[](std::string_view key) const; // missing: an error
  [[nodiscard]] std::optional<JsonReader> find(std::string_view key) const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_text(std::string_view text) const; // this very text
  [[nodiscard]] std::string const& path() const;           // "chip.memory"; empty at the top
  [[nodiscard]] std::string const& file() const;           // or the name given to read_text()

  [[nodiscard]] std::vector<JsonReader> elements() const; // of an array

  [[nodiscard]] std::string text() const;         // not empty
  [[nodiscard]] std::string as_it_stands() const; // of whatever type; one line, a long value shortened, no quotes
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double number(double least, double most) const;
  // A string with a unit, "450 GB/s". Q as for parse_quantity().
  template <class Q>
  [[nodiscard]] Q quantity() const;
  // A string out of a list.
  template <class T>
  [[nodiscard]] T choice(std::initializer_list<std::pair<std::string_view, T>> choices) const {
    return choice_of<T>(choices);
  }
  template <class T, std::size_t n>
  [[nodiscard]] T choice(std::array<std::pair<std::string_view, T>, n> const& choices) const {
    return choice_of<T>(choices);
  }

  // Throws the InputError of this value; the rule says what it must be.
  [[noreturn]] void fail(std::string_view rule) const;

private:
  struct Document;
  template <class T, class Choices>
  [[nodiscard]] T choice_of(Choices const& choices) const {
    std::vector<std::string_view> names;
    for (auto const& [name, value] : choices) {
      if (is_text(name))
        return value;
      names.push_back(name);
    }
    fail_choice(names);
  }

  JsonReader(std::shared_ptr<Document const> document, nlohmann::json const* value, std::string path);
  [[nodiscard]] JsonReader child(nlohmann::json const& value, std::string_view key) const;
  [[noreturn]] void fail_choice(std::vector<std::string_view> const& names) const;

  std::shared_ptr<Document const> document_;
  nlohmann::json const* value_;
  std::string path_;
};

} // namespace foreplan
