#!/bin/sh
# doc_programs compiles every piece of code in the last column of a page's tables, and refuses rows that have none.
set -eu
doc_programs=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder"

# page ROWS: a page with a program and a table of these rows.
page() {
  {
    printf '```cpp\n// rows.cpp\nint main() {\n  // ... every row of the table\n}\n```\n\n'
    printf '| PyTorch | Sinter |\n|---|---|\n%s\n\n| option | |\n|---|---|\n| `--list` | in words |\n' "$1"
  } > "$folder/page.md"
}

# refused WORDS: the page, in words.
refused() {
  ! "$doc_programs" "$folder/page.md" "$folder" rows.cpp 2> "$folder/error.txt"
  cat "$folder/error.txt"
  grep -q -e "$1" "$folder/error.txt"
}

page '| `one` | `first()`, in words `second(); third()` (and so on), `a \| b` |
| `two` | none: `not_code` |'
"$doc_programs" "$folder/page.md" "$folder" rows.cpp
cat > "$folder/expected.cpp" <<'END'
// rows.cpp
int main() {
  // ... every row of the table
  (void)[&] { first(); };
  (void)[&] { second(); third(); };
  (void)[&] { a | b; };
}
END
cmp "$folder/rows.cpp" "$folder/expected.cpp"

page '| `one` | in words |'
refused 'a row has no code'
page '| `one` | `a` | `b` |'
refused 'more or fewer cells'
page '| `one` | `a | b` |'
refused 'more or fewer cells'
page '| `one` | `a'
refused 'without its last bar'
page '| `one` | `a |'
refused 'code without an end'
page '| `one` | `a` |

| PyTorch | here |
|---|---|
| `one` | `b` |'
refused 'the last column of a table'
rm -rf "$folder"
