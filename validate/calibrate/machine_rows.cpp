#include "validate/calibrate/machine_rows.hpp"

#include <map>
#include <sstream>
#include <stdexcept>

namespace foreplan {
namespace {

std::vector<std::string> cells_of(std::string const& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');)
    cells.push_back(cell);
  return cells;
}

MeasuredOp kernel_of(std::vector<std::string> const& cells) {
  return {cells.at(1), cells.at(2), std::stod(cells.at(3)), std::stod(cells.at(4)), std::stod(cells.at(5)), 1};
}

MeasuredOp communication_of(std::vector<std::string> const& cells) {
  return {cells.at(1), cells.at(2), 0, std::stod(cells.at(4)), std::stod(cells.at(5)), std::stoi(cells.at(3))};
}

} // namespace

MachineRows read_machine_rows(std::string const& text) {
  MachineRows rows;
  std::map<std::string, double*> const numbers{{"kernel_gap", &rows.kernel_gap},
                                               {"communication_gap", &rows.communication_gap},
                                               {"triad", &rows.triad},
                                               {"copy", &rows.copy},
                                               {"file_read", &rows.file_read},
                                               {"file_write", &rows.file_write},
                                               {"base_memory", &rows.base_memory}};
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::vector<std::string> const cells = cells_of(line);
    try {
      if (cells.at(0) == "kernel")
        rows.kernels.push_back(kernel_of(cells));
      else if (cells[0] == "communication")
        rows.communication.push_back(communication_of(cells));
      else if (cells[0] == "file")
        rows.file_access = line.substr(line.find(',') + 1);
      else if (cells[0] == "versions")
        rows.versions = line.substr(line.find(',') + 1);
      else
        *numbers.at(cells[0]) = std::stod(cells.at(1));
    } catch (std::logic_error const&) { // std::out_of_range, std::invalid_argument
      throw std::runtime_error("foreplan-suite wrote a row that cannot be read: " + line);
    }
  }
  return rows;
}

} // namespace foreplan
