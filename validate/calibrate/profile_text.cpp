#include "validate/calibrate/profile_text.hpp"

#include <fmt/format.h>

#include <optional>

namespace foreplan {

namespace {

// Position behind what begins at `at`, when that is a string or a comment; else `at`.
std::size_t skip(std::string const& text, std::size_t at) {
  if (text[at] == '"') {
    for (++at; at < text.size() && text[at] != '"'; ++at)
      if (text[at] == '\\')
        ++at;
    return at + 1;
  }
  if (text.compare(at, 2, "//") == 0)
    return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) {
    std::size_t const end = text.find("*/", at);
    return end == std::string::npos ? text.size() : end + 2;
  }
  return at;
}

struct Member {
  std::size_t begin = 0; // of its name
  std::size_t end = 0;   // behind its value
};

struct Layout {
  std::optional<Member> member;
  std::size_t last = 0;  // behind the last value of the object, where one could be added
  std::size_t close = 0; // its closing brace
  bool empty = true;
};

// Walks over the top level. Values are objects, arrays, strings or words.
Layout layout_of(std::string const& text, std::string_view key) {
  Layout layout;
  std::string const name = fmt::format("\"{}\"", key);
  int depth = 0;
  bool is_name = true;            // the next string at the top level is a member's name
  std::size_t open = text.size(); // where the member that is being read began; none: the text's end
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const next = skip(text, at);
    bool const is_string = next != at && text[at] == '"';
    if (next != at && !is_string) {
      at = next;
      continue;
    }
    char const c = text[at];
    if (depth == 1 && is_string && is_name && text.compare(at, name.size(), name) == 0 && next == at + name.size())
      open = at;
    if (depth == 1 && c == ':')
      is_name = false;
    bool const ends = depth == 1 && (c == ',' || c == '}');
    if (ends && open < text.size()) {
      layout.member = Member{open, layout.last};
      open = text.size();
    }
    if (depth == 1 && c == ',')
      is_name = true;
    if (c == '{' || c == '[')
      ++depth;
    if (c == '}' || c == ']')
      --depth;
    at = is_string ? next : at + 1;
    bool const blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (depth == 0 && c == '}') {
      layout.close = at - 1;
      return layout;
    }
    if (!blank && c != ',' && (depth > 1 || (depth == 1 && c != '{'))) {
      layout.last = at;
      layout.empty = false;
    }
  }
  return layout;
}

} // namespace

std::string with_member(std::string const& text, std::string_view key, std::string const& member) {
  Layout const layout = layout_of(text, key);
  if (layout.close == 0)
    return text;
  if (layout.member)
    return text.substr(0, layout.member->begin) + member + text.substr(layout.member->end);
  if (layout.empty)
    return text.substr(0, layout.close) + member + text.substr(layout.close);
  return text.substr(0, layout.last) + ",\n  " + member + text.substr(layout.last);
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\')
      quoted += '\\';
    if (static_cast<unsigned char>(c) < ' ')
      quoted += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      quoted += c;
  }
  return quoted + '"';
}

} // namespace foreplan
