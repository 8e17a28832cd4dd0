#include "tests/catch.hpp"

#include "io/json_reader.hpp"
#include "units/quantity.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

using namespace foreplan;

namespace {

// The line of the InputError that `action` must throw.
std::string error_of(std::function<void()> const& action) {
  try {
    action();
  } catch (InputError const& error) {
    std::string line = error.what();
    CHECK(line.find('\n') == std::string::npos);
    return line;
  }
  FAIL("no InputError");
  return {};
}

std::string error_of_text(std::string const& text) {
  return error_of([&] { (void)JsonReader::read_text(text, "x.json", "test 1"); });
}

JsonReader read(std::string const& text) { return JsonReader::read_text(text, "x.json"); }

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("values are read with types, units and ranges") {
  JsonReader reader = read(R"({
    // comments are allowed
    "name": "H100", "link": {"rate": "400 Gb/s"}, "layers": 80, "share": 0.5, "tied": true, "list": [1, 2]
  })");
  reader.expect_keys({"name", "link", "layers", "share", "tied", "list"});
  CHECK(reader["name"].text() == "H100");
  CHECK(reader["link"]["rate"].quantity<BytesPerSecond>().value() == 50e9);
  CHECK(reader["layers"].integer(1, 100) == 80);
  CHECK(reader["share"].number(0, 1) == 0.5);
  CHECK(reader["tied"].boolean());
  CHECK(reader["list"].elements().at(1).integer(0, 9) == 2);
  CHECK(reader["list"].elements().at(1).path() == "list[1]");
  CHECK(!reader.find("nothing"));
  CHECK(reader["name"].choice<int>({{"A100", 1}, {"H100", 2}}) == 2);
}

TEST_CASE("an error names file, key path, value and rule") {
  JsonReader reader = read(R"({"chip": {"layers": -3, "memory": "80 XB", "kind": "fited", "big": 1e30, "half": 0.5}})");
  JsonReader chip = reader["chip"];
  CHECK(error_of([&] { (void)chip["layers"].integer(1, 100); }) ==
        "x.json: chip.layers: -3 must be a whole number from 1 to 100");
  CHECK(error_of([&] { (void)chip["memory"].quantity<Seconds>(); }) ==
        "x.json: chip.memory: \"80 XB\" has the unknown unit \"XB\"; valid units: ns, us, ms, s, min, h, µs");
  auto choose = [&] { (void)chip["kind"].choice<int>({{"fitted", 1}, {"measured", 2}}); };
  CHECK(error_of(choose) ==
        "x.json: chip.kind: \"fited\" is unknown; did you mean \"fitted\"? valid: fitted, measured");
  CHECK(error_of([&] { (void)chip["missing"]; }) == "x.json: chip.missing: is missing");
  auto expect = [&] { chip.expect_keys({"layers", "memory", "kinds", "big", "half"}); };
  CHECK(error_of(expect) == "x.json: chip.kind: \"fited\" is an unknown key; did you mean \"kinds\"? "
                            "valid: layers, memory, kinds, big, half");
  CHECK(contains(error_of([&] { (void)chip["big"].integer(1, 100); }), "1e+30 must be a whole number"));
  CHECK(contains(error_of([&] { (void)chip["half"].integer(0, 100); }), "must be a whole number"));
  CHECK(contains(error_of([&] { (void)chip["half"].number(1, 2); }), "from 1 to 2"));
  CHECK(contains(error_of([&] { (void)chip["half"].text(); }), "must be a string"));
  CHECK(contains(error_of([&] { (void)chip["half"].boolean(); }), "must be true or false"));
  CHECK(contains(error_of([&] { (void)chip["half"].elements(); }), "must be an array"));
  CHECK(contains(error_of([&] { (void)chip["half"]["x"]; }), "must be an object"));
  CHECK(contains(error_of([&] { (void)chip["half"].quantity<Bytes>(); }), "valid units: B, kB"));
}

TEST_CASE("the format of a file is checked") {
  CHECK(JsonReader::read_text(R"({"format": "test 1"})", "x.json", "test 1").is_object());
  CHECK(error_of_text(R"({"format": "test 2"})") == "x.json: format: \"test 2\" must be \"test 1\"");
  CHECK(error_of_text("{}") == "x.json: format: is missing");
  CHECK(error_of_text("[]") == "x.json: [] must be an object");
}

TEST_CASE("what is no JSON is refused in one line") {
  for (std::string text :
       {"{", "{\"a\": nan}", "{\"a\": NaN}", "{\"a\": Infinity}", "{\"a\": 1e999}", "{'a': 1}", "{\"a\": 1,}", "{} {}",
        "{\"a\": \"\n\"}", "{\"a\": \"\xff\"}", "\0", "nul", "{\"a\": 01}"}) {
    INFO(text);
    CHECK(error_of_text(text).starts_with("x.json: "));
  }
  CHECK(contains(error_of_text("{\"a\":\n  tru}"), "line 2"));
  CHECK(error_of_text("") == "x.json: is empty, must be a JSON file");
  CHECK(error_of_text(" \n\t ") == "x.json: is empty, must be a JSON file");
  CHECK(error_of_text(R"({"a": 1, "a": 2})") == "x.json: the key \"a\" stands twice in one object");
  CHECK(error_of_text("{\"" + std::string(1 << 20, 'x')).size() < 1000); // not the whole of a broken file
}

TEST_CASE("deep nesting is refused, not followed") {
  std::string const many(1'000'000, '[');
  CHECK(error_of_text(many) == "x.json: is nested deeper than 64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i)
    objects += "{\"a\":";
  CHECK(error_of_text(objects) == "x.json: is nested deeper than 64 levels");
}

TEST_CASE("a long value is shortened in an error") {
  JsonReader reader = read("{\"a\": \"" + std::string(10'000, 'x') + "\"}");
  CHECK(error_of([&] { (void)reader["a"].boolean(); }).size() < 200);
}

TEST_CASE("files that cannot be read") {
  namespace fs = std::filesystem;
  fs::path const folder = fs::temp_directory_path() / "foreplan_json_reader_test";
  fs::create_directories(folder);
  std::string const missing = (folder / "missing.json").string();
  std::string const empty = (folder / "empty.json").string();
  std::ofstream(empty).close();
  auto read_file = [](std::string const& path) { (void)JsonReader::read_file(path, "test 1"); };
  CHECK(error_of([&] { read_file(missing); }) == missing + ": no such file");
  CHECK(error_of([&] { read_file(folder.string()); }) == folder.string() + ": is a directory, must be a JSON file");
  CHECK(error_of([&] { read_file(empty); }) == empty + ": is empty, must be a JSON file");
  fs::remove_all(folder);
}
