// Hardware profiles as text, so that comments and order stay when a block is written into one.
#pragma once

#include <string>
#include <string_view>

namespace foreplan {

// The JSON object of `text` with the member `key` at its top level replaced by `member` ("\"key\": {...}", without a
// comma), or with it added at the end. The text must be an object, with comments or without; else it comes back as it
// is.
std::string with_member(std::string const& text, std::string_view key, std::string const& member);

// A JSON string with its quotes.
std::string json_quoted(std::string_view text);

} // namespace foreplan
