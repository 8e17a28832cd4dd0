#pragma once

#include "io/json_reader.hpp"
#include "report/report.hpp"

namespace foreplan {

// Reads back what to_json() wrote, as far as comparing takes: all but the critical path and what memory holds. Throws InputError.
Report read_report(JsonReader const& reader);

} // namespace foreplan
