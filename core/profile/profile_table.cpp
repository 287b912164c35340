#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include <sinter/core/profile/profile_table.h>

namespace sinter {
namespace {

using Row = OpProfile::Row;

constexpr size_t kLineWidth = 120;
constexpr size_t kLeastScope = 16;

Row sum_of(const char* name, std::span<const Row> rows) {
  Row sum{.op = name, .kernel = "", .shapes = "", .scope = "", .device = {}};
  for (const Row& row : rows) {
    sum.calls += row.calls;
    sum.device_us += row.device_us;
    sum.host_us += row.host_us;
    sum.bytes += row.bytes;
    sum.copy_us += row.copy_us;
    sum.flops += row.flops;
  }
  return sum;
}

/// A text of at most `width` characters: the end of a longer one, which says most of a scope.
std::string shortened(const std::string& text, size_t width) {
  return text.size() <= width ? text : "..." + text.substr(text.size() - (width - 3));
}

/// Three digits: 0.0241, 17.1, 4096.
std::string rounded(double number) {
  return std::abs(number) < 1000 ? fmt::format("{:.3g}", number) : fmt::format("{:.0f}", number);
}

class Table {
 public:
  explicit Table(std::span<const Row> rows, double total_us) : total_us_(total_us) {
    for (const Row& row : rows) {
      op_width_ = std::max(op_width_, row.op.size());
      kernel_width_ = std::max(kernel_width_, row.kernel.size());
      several_devices_ = several_devices_ || row.device != rows.front().device;
      has_scopes_ = has_scopes_ || !row.scope.empty();
    }
  }

  std::string titles() const {
    return line("op", "kernel", "device",
                fmt::format("{:>6} {:>9} {:>6} {:>9} {:>8} {:>8} {:>7} {:>8}", "calls", "time ms", "%",
                            "us/call", "host us", "GB", "of copy", "TFLOP/s"),
                "scope", "");
  }

  std::string line(const Row& row, const std::string& device) const {
    const auto calls = static_cast<double>(std::max<uint64_t>(row.calls, 1));
    const double share = total_us_ > 0 ? 100.0 * row.device_us / total_us_ : 0.0;
    const std::string of_copy = row.copy_us > 0 ? fmt::format("{:.0f}%", 100.0 * row.copy_share()) : "";
    const std::string teraflops = row.flops > 0 ? rounded(row.teraflops()) : "";
    return line(row.op, row.kernel, device,
                fmt::format("{:>6} {:>9.3f} {:>6.1f} {:>9.2f} {:>8.2f} {:>8} {:>7} {:>8}", row.calls,
                            row.device_us / 1000.0, share, row.device_us / calls, row.host_us / calls,
                            rounded(row.bytes / 1e9), of_copy, teraflops),
                row.scope, row.shapes);
  }

 private:
  std::string line(const std::string& op, const std::string& kernel, const std::string& device,
                   const std::string& numbers, const std::string& scope, const std::string& shapes) const {
    std::string text = fmt::format("{:<{}} {:<{}} ", op, op_width_, kernel, kernel_width_);
    if (several_devices_) text += fmt::format("{:<8} ", device);
    text += numbers;
    if (has_scopes_) {
      const size_t room = kLineWidth - std::min(text.size() + 2, kLineWidth - kLeastScope);
      text += "  " +
              (shapes.empty() ? shortened(scope, room) : fmt::format("{:<{}}", shortened(scope, room), room));
    }
    if (!shapes.empty()) text += "  " + shapes;
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  }

  double total_us_;
  size_t op_width_ = 10, kernel_width_ = 6;
  bool several_devices_ = false, has_scopes_ = false;
};

}  // namespace

std::string to_table(const std::vector<Row>& rows, size_t most) {
  const Row total = sum_of("total", rows);
  const std::span<const Row> listed = std::span(rows).first(std::min(most, rows.size()));
  const std::span<const Row> others = std::span(rows).subspan(listed.size());
  const Table table(listed, total.device_us);
  std::string text = table.titles();
  for (const Row& row : listed) text += table.line(row, to_string(row.device));
  if (!others.empty())
    text += table.line(
        sum_of(fmt::format("{} other{}", others.size(), others.size() == 1 ? "" : "s").c_str(), others), "");
  return text + table.line(total, "");
}

}  // namespace sinter
