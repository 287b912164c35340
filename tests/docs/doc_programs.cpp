// Takes the programs out of a page of the documentation, so that what the page shows is what is compiled.
//
//   doc_programs <page.md> <folder> <program.cpp>...
//
// A block of C++ (```cpp) whose first line is "// <name>.cpp" begins a program, and the blocks after it go on
// with it. Where a program has the line "// ... every row of the table", the code in the last column of each
// of the page's tables follows, row by row. The programs found must be those that are named.
//
//   doc_programs --fragments <template.cpp> <program.cpp> <page.md>...
//
// Pages without programs of their own show pieces of code. The template says what stands around them: its
// line
// "// block <page.md> <n>" becomes the page's n-th block. Every block of every page must have a place.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr const char* kRowsMark = "// ... every row of the table";

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The code between the backticks of the last cell of a table's row; empty if there is none.
std::string code_of_row(const std::string& row) {
  const size_t close = row.rfind('`');
  if (close == std::string::npos || close == 0) return {};
  const size_t open = row.rfind('`', close - 1);
  const size_t cell = row.rfind(" | ");
  if (open == std::string::npos || cell == std::string::npos || open < cell) return {};
  return row.substr(open + 1, close - open - 1);
}

std::map<std::string, std::string> programs_of(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> programs;
  std::string rows, current;
  bool in_code = false, is_first = false;
  for (const std::string& line : lines) {
    if (line.starts_with("```")) {
      in_code = !in_code && line == "```cpp";
      is_first = in_code;
    } else if (in_code) {
      const bool names = is_first && line.starts_with("// ") && line.ends_with(".cpp");
      if (names) current = line.substr(3);
      if (current.empty()) throw std::runtime_error("code before the first program: " + line);
      programs[current] += line + "\n";
      is_first = false;
    } else if (line.starts_with("|")) {
      const std::string code = code_of_row(line);
      if (!code.empty()) rows += "  (void)[&] { " + code + "; };\n";
    }
  }
  for (auto& [name, text] : programs) {
    const size_t mark = text.find(kRowsMark);
    if (mark != std::string::npos) text.insert(text.find('\n', mark) + 1, rows);
  }
  return programs;
}

/// The blocks of C++ of a page of which none begins a program.
std::vector<std::string> fragments_of(const std::vector<std::string>& lines) {
  std::vector<std::string> blocks;
  bool in_code = false;
  for (const std::string& line : lines) {
    if (line.starts_with("```")) {
      in_code = !in_code && line == "```cpp";
      if (in_code) blocks.emplace_back();
    } else if (in_code) {
      if (blocks.back().empty() && line.starts_with("// ") && line.ends_with(".cpp")) return {};
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

int write_fragments(int argc, char** argv) {
  if (argc < 5)
    throw std::runtime_error("usage: doc_programs --fragments <template.cpp> <program.cpp> <page.md>...");
  std::map<std::string, std::vector<std::string>> blocks;
  for (int i = 4; i < argc; ++i) {
    blocks[std::filesystem::path(argv[i]).filename().string()] = fragments_of(read_lines(argv[i]));
  }
  std::string text;
  for (const std::string& line : read_lines(argv[2])) {
    char page[64] = {};
    size_t number = 0;
    const size_t start = line.find_first_not_of(' ');
    if (start == std::string::npos ||
        std::sscanf(line.c_str() + start, "// block %63s %zu", page, &number) != 2) {
      text += line + "\n";
      continue;
    }
    const auto found = blocks.find(page);
    if (found == blocks.end() || number < 1 || number > found->second.size() ||
        found->second[number - 1].empty()) {
      throw std::runtime_error(std::string(page) + " has no block " + std::to_string(number) +
                               ", or it has a place already");
    }
    text += std::exchange(found->second[number - 1], {});
  }
  for (const auto& [page, left] : blocks) {
    for (const std::string& block : left) {
      if (!block.empty())
        throw std::runtime_error(page + ": this block has no place in " + argv[2] + ":\n" + block);
    }
  }
  write_file(argv[3], text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::string(argv[1]) == "--fragments") return write_fragments(argc, argv);
  if (argc < 4) throw std::runtime_error("usage: doc_programs <page.md> <folder> <program.cpp>...");
  const std::map<std::string, std::string> programs = programs_of(read_lines(argv[1]));
  std::map<std::string, bool> named;
  for (int i = 3; i < argc; ++i) named[argv[i]] = true;
  for (const auto& [name, text] : programs) {
    if (!named.erase(name)) throw std::runtime_error("program " + name + " is not among those named");
    write_file(std::filesystem::path(argv[2]) / name, text);
  }
  if (!named.empty()) throw std::runtime_error("program " + named.begin()->first + " is not on the page");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "doc_programs: %s\n", error.what());
  return 1;
}
