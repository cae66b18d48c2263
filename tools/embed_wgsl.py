"""Write wgsl_sources.h and .cpp: a table of the WGSL sources, without comments and most spaces.

A source is named by its path relative to runtime/operators (or to runtime/, where it is elsewhere), with slashes.
Lines starting with `#` are directives of our preprocessor and stay lines of their own.
"""

import argparse
import re
from pathlib import Path

HEADER = """#pragma once
#include <span>
#include <string_view>

namespace etwgpu {

struct WgslSource {
  std::string_view name;
  std::string_view text;
};

// All embedded sources, sorted by name.
std::span<const WgslSource> wgslSources();

// The text of one source; empty if there is none of that name.
std::string_view wgslSource(std::string_view name);

}  // namespace etwgpu
"""

SOURCE = """#include "generated/wgsl_sources.h"

#include <algorithm>

namespace etwgpu {{
namespace {{

constexpr WgslSource kSources[] = {{
{entries}    {{"~", ""}},  // an array may not be empty; "~" sorts last
}};

}}  // namespace

std::span<const WgslSource> wgslSources() {{ return std::span(kSources).first(std::size(kSources) - 1); }}

std::string_view wgslSource(std::string_view name) {{
  const auto sources = wgslSources();
  const auto it = std::ranges::lower_bound(sources, name, {{}}, &WgslSource::name);
  return it != sources.end() && it->name == name ? it->text : std::string_view();
}}

}}  // namespace etwgpu
"""


def strip_block_comments(text: str) -> str:
    """WGSL's block comments nest, so a regular expression cannot match them."""
    out = []
    depth = 0
    for token in re.split(r"(/\*|\*/|//[^\n]*)", text):
        if token == "/*":
            depth += 1
        elif token == "*/" and depth:
            depth -= 1
        elif depth == 0:
            out.append(token)
        else:
            out.append("\n" * token.count("\n"))
    return "".join(out)


# What needs no space beside it. Not - and /: two of them together are something else. Nor < and >, where a space can
# tell a comparison from a list of types.
TIGHT = re.compile(r" ?([=,;(){}\[\]+*:&|^?]) ?")


def without_spaces(line: str) -> str:
    """A `${NAME}` keeps the spaces around it, since what it stands for is a word as a rule; so do our directives."""
    if line.startswith("#"):
        return line
    parts = re.split(r"( ?\$\{\w+\} ?)", line)
    return "".join(part if i % 2 else TIGHT.sub(r"\1", part) for i, part in enumerate(parts))


def minify(text: str) -> str:
    text = re.sub(r"//[^\n]*", "", strip_block_comments(text))
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines())
    return "\n".join(without_spaces(line) for line in lines if line) + "\n"


def source_name(path: Path, runtime: Path) -> str:
    operators = runtime / "operators"
    return path.relative_to(operators if path.is_relative_to(operators) else runtime).as_posix()


def write_if_changed(path: Path, text: str) -> None:
    # an unchanged header keeps its time stamp, so that what includes it is not compiled again
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("files", type=Path, nargs="*")
    args = parser.parse_args()

    sources = {source_name(path, args.runtime): minify(path.read_text()) for path in args.files}
    entries = "".join(
        f'    {{"{name}", R"wgsl({text})wgsl"}},\n' for name, text in sorted(sources.items(), key=lambda item: item[0])
    )
    args.out.mkdir(parents=True, exist_ok=True)
    write_if_changed(args.out / "wgsl_sources.h", HEADER)
    (args.out / "wgsl_sources.cpp").write_text(SOURCE.format(entries=entries))


if __name__ == "__main__":
    main()
