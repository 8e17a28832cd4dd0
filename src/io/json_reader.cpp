#include "io/json_reader.hpp"

#include "io/suggestion.hpp"
#include "units/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

namespace foreplan {

using Json = nlohmann::json;

struct JsonReader::Document {
  std::string name;
  Json root;
};

namespace {

constexpr int deepest = 64;
constexpr std::size_t largest_file = std::size_t{256} << 20;
constexpr std::size_t longest_shown = 80; // characters of a value in an error

// An error must stay one line, whatever stands in names and values.
std::string one_line(std::string text) {
  for (char& character : text)
    if (static_cast<unsigned char>(character) < ' ')
      character = ' ';
  return text;
}

[[noreturn]] void fail_file(std::string_view name, std::string_view message) {
  throw InputError(one_line(fmt::format("{}: {}", name, message)));
}

std::string shown(Json const& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace); // ASCII only
  return text.size() <= longest_shown ? text : text.substr(0, longest_shown) + "...";
}

std::string read_bytes(std::string const& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail_file(path, "is a directory, must be a JSON file");
  std::ifstream file(path, std::ios::binary);
  if (!file)
    fail_file(path, std::filesystem::exists(path, ignored) ? "cannot be read" : "no such file");
  std::string bytes;
  std::vector<char> block(std::size_t{1} << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    bytes.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > largest_file)
      fail_file(path, "is larger than 256 MiB");
  }
  return bytes;
}

// Refuses repeated keys and deep nesting while the text is parsed; nlohmann::json itself allows both.
class StructureCheck {
public:
  explicit StructureCheck(std::string const& name) : name_(name) {}

  bool operator()(int depth, Json::parse_event_t event, Json const& parsed) {
    using Event = Json::parse_event_t;
    if (depth > deepest)
      fail_file(name_, fmt::format("is nested deeper than {} levels", deepest));
    if (event == Event::object_start)
      open_objects_.emplace_back();
    else if (event == Event::object_end)
      open_objects_.pop_back();
    else if (event == Event::key && !open_objects_.back().insert(parsed.get<std::string>()).second)
      fail_file(name_, fmt::format("the key {} stands twice in one object", shown(parsed)));
    return true;
  }

private:
  std::string const& name_;
  std::vector<std::set<std::string>> open_objects_;
};

// "[json.exception.parse_error.101] parse error at line 3, column 5: ..." without the bracket, and without the whole of
// a very long token.
std::string_view parse_message(std::string_view message) {
  std::size_t end = message.find("] ");
  if (message.starts_with('[') && end != std::string_view::npos)
    message.remove_prefix(end + 2);
  return message.substr(0, 300);
}

Json parse(std::string_view text, std::string const& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    fail_file(name, "is empty, must be a JSON file");
  try {
    StructureCheck check(name);
    return Json::parse(text.begin(), text.end(), std::ref(check), /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (Json::exception const& error) {
    fail_file(name, parse_message(error.what()));
  }
}

std::string join(std::string const& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

} // namespace

JsonReader::JsonReader(std::shared_ptr<Document const> document, Json const* value, std::string path)
    : document_(std::move(document)), value_(value), path_(std::move(path)) {}

JsonReader JsonReader::read_file(std::string const& path, std::string_view format) {
  return read_text(read_bytes(path), path, format);
}

JsonReader JsonReader::read_text(std::string_view text, std::string const& name, std::string_view format) {
  auto document = std::make_shared<Document>(Document{name, parse(text, name)});
  JsonReader top(document, &document->root, "");
  if (!top.is_object())
    top.fail("must be an object");
  if (!format.empty())
    top.expect_format(format);
  return top;
}

void JsonReader::expect_format(std::string_view format) const {
  JsonReader const given = (*this)["format"];
  if (!given.is_text(format))
    given.fail(fmt::format("must be \"{}\"", format));
}

void JsonReader::expect_keys(std::vector<std::string_view> const& keys) const {
  if (!is_object())
    fail("must be an object");
  for (auto const& [key, value] : value_->items()) {
    bool allowed = std::find(keys.begin(), keys.end(), key) != keys.end() || (path_.empty() && key == "format");
    if (!allowed)
      child(value, key).fail(fmt::format("is an unknown key; {}", suggestion(key, keys)));
  }
}

JsonReader JsonReader::operator[](std::string_view key) const {
  if (std::optional<JsonReader> found = find(key))
    return *found;
  fail_file(document_->name, fmt::format("{}: is missing", join(path_, key)));
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  if (!is_object())
    fail("must be an object");
  auto found = value_->find(key);
  if (found == value_->end())
    return std::nullopt;
  return child(*found, key);
}

std::string const& JsonReader::path() const { return path_; }

std::string const& JsonReader::file() const { return document_->name; }

bool JsonReader::is_object() const { return value_->is_object(); }

bool JsonReader::is_null() const { return value_->is_null(); }

std::vector<JsonReader> JsonReader::elements() const {
  if (!value_->is_array())
    fail("must be an array");
  std::vector<JsonReader> all;
  for (std::size_t i = 0; i < value_->size(); ++i)
    all.push_back(JsonReader(document_, &(*value_)[i], fmt::format("{}[{}]", path_, i)));
  return all;
}

std::string JsonReader::text() const {
  if (!value_->is_string() || value_->get_ref<std::string const&>().empty())
    fail("must be a string that is not empty");
  return value_->get<std::string>();
}

std::string JsonReader::as_it_stands() const {
  std::string const text = shown(*value_);
  return value_->is_string() && text.ends_with('"') ? text.substr(1, text.size() - 2) : text;
}

bool JsonReader::boolean() const {
  if (!value_->is_boolean())
    fail("must be true or false");
  return value_->get<bool>();
}

std::int64_t JsonReader::integer(std::int64_t least, std::int64_t most) const {
  bool fits = value_->is_number_integer() &&
              (!value_->is_number_unsigned() ||
               value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most)
    fail(fmt::format("must be a whole number from {} to {}", least, most));
  return value_->get<std::int64_t>();
}

double JsonReader::number(double least, double most) const {
  // written so that NaN fails too
  if (!value_->is_number() || !(value_->get<double>() >= least && value_->get<double>() <= most))
    fail(fmt::format("must be a number from {} to {}", least, most));
  return value_->get<double>();
}

template <class Q>
Q JsonReader::quantity() const {
  if (!value_->is_string())
    fail(fmt::format("must be a string with a number and a unit; valid units: {}", valid_units<Q>()));
  try {
    return parse_quantity<Q>(value_->get_ref<std::string const&>());
  } catch (std::invalid_argument const& error) {
    fail(error.what());
  }
}

template Bytes JsonReader::quantity<Bytes>() const;
template Flops JsonReader::quantity<Flops>() const;
template Seconds JsonReader::quantity<Seconds>() const;
template BytesPerSecond JsonReader::quantity<BytesPerSecond>() const;
template FlopsPerSecond JsonReader::quantity<FlopsPerSecond>() const;

void JsonReader::fail(std::string_view rule) const {
  std::string place = path_.empty() ? "" : path_ + ": ";
  fail_file(document_->name, fmt::format("{}{} {}", place, shown(*value_), rule));
}

bool JsonReader::is_text(std::string_view text) const {
  return value_->is_string() && value_->get_ref<std::string const&>() == text;
}

JsonReader JsonReader::child(Json const& value, std::string_view key) const {
  return JsonReader(document_, &value, join(path_, key));
}

void JsonReader::fail_choice(std::vector<std::string_view> const& names) const {
  std::string_view given = value_->is_string() ? std::string_view(value_->get_ref<std::string const&>()) : "";
  fail(fmt::format("is unknown; {}", suggestion(given, names)));
}

} // namespace foreplan
