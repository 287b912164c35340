// Takes the programs out of a page of the documentation, so that what the page shows is what is compiled.
//
//   doc_programs <page.md> <folder> <program.cpp>...
//
// A block of C++ (```cpp) whose first line is "// <name>.cpp" begins a program, and the blocks after it go on
// with it. Where a program has the line "// ... every row of the table", the code in the last column of the
// page's tables follows: all pieces of it, row by row, of each table whose last column is called Sinter. A
// row there that has no code begins that column with "none". Tables of words have no name over their last
// column. The programs found must be those that are named.
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
constexpr const char* kCodeColumn = "Sinter";

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// What stands between the bars of a table's row; a bar with a backslash before it is one of the code.
std::vector<std::string> cells_of(const std::string& row) {
  if (row.size() < 2 || !row.ends_with("|")) throw std::runtime_error("a row without its last bar: " + row);
  std::vector<std::string> cells(1);
  for (size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|') {
      cells.back() += row[++i];
    } else if (row[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += row[i];
    }
  }
  cells.pop_back();  // behind the last bar
  for (std::string& cell : cells) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
  }
  return cells;
}

/// The pieces of code in a cell, those between backticks.
std::vector<std::string> code_of_cell(const std::string& cell) {
  std::vector<std::string> pieces;
  for (size_t open = cell.find('`'); open != std::string::npos;) {
    const size_t close = cell.find('`', open + 1);
    if (close == std::string::npos) throw std::runtime_error("code without an end: " + cell);
    pieces.push_back(cell.substr(open + 1, close - open - 1));
    open = cell.find('`', close + 1);
  }
  return pieces;
}

/// Statements with all code in the last columns of a page's tables.
std::string rows_of(const std::vector<std::string>& lines) {
  std::string statements;
  bool in_block = false, in_table = false, has_code = false;
  size_t columns = 0;
  for (const std::string& line : lines) {
    if (line.starts_with("```")) in_block = !in_block;
    const bool is_row = !in_block && line.starts_with("|");
    if (is_row) {
      const std::vector<std::string> cells = cells_of(line);
      const std::string& last = cells.back();
      if (in_table && cells.size() != columns)
        throw std::runtime_error(
            "a row has more or fewer cells than the one over it (in code, \\| is a bar): " + line);
      columns = cells.size();
      if (!in_table) {
        has_code = last == kCodeColumn;
        if (!has_code && !last.empty())
          throw std::runtime_error("the last column of a table is neither called " +
                                   std::string(kCodeColumn) + " nor without a name: " + line);
      } else if (has_code && !last.starts_with("none") && !last.starts_with("--")) {
        const std::vector<std::string> pieces = code_of_cell(last);
        if (pieces.empty())
          throw std::runtime_error("a row has no code in its last column, and does not begin it with none: " +
                                   line);
        for (const std::string& piece : pieces) statements += "  (void)[&] { " + piece + "; };\n";
      }
    }
    in_table = is_row;
  }
  return statements;
}

std::map<std::string, std::string> programs_of(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> programs;
  std::string current;
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
    }
  }
  for (auto& [name, text] : programs) {
    const size_t mark = text.find(kRowsMark);
    if (mark != std::string::npos) text.insert(text.find('\n', mark) + 1, rows_of(lines));
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
