#include "common/plan_report.h"

#include <sstream>

namespace memops {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string json_of(std::int64_t value) { return std::to_string(value); }
std::string json_of(const std::string& value) { return quoted(value); }
std::string json_of(const std::vector<std::int64_t>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return out + "]";
}

}  // namespace

std::string PlanReport::json(const DeviceFacts& device) const {
  std::ostringstream out;
  out << "{\"op\": " << quoted(op) << ", \"kernel\": " << quoted(kernel)
      << ", \"reason\": " << quoted(reason) << ", \"device\": " << quoted(device.name)
      << ", \"facts\": {";
  const char* separator = "";
  for (const auto& [name, value] : facts) {
    out << separator << quoted(name) << ": "
        << std::visit([](const auto& v) { return json_of(v); }, value);
    separator = ", ";
  }
  out << "}}";
  return out.str();
}

}  // namespace memops
