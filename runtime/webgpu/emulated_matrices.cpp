#include "runtime/webgpu/emulated_matrices.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace etwgpu {
namespace {

void replaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Where the text has `what`; going on without it would give another kernel.
Result<size_t> find(const std::string& text, std::string_view what, size_t from = 0) {
  const size_t at = text.find(what, from);
  if (at != std::string::npos) return at;
  return Status(Code::internal, format("no '%s' in WGSL of subgroup matrices", std::string(what).c_str()));
}

bool isName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// What a call becomes: `load_Left_row_tile(` of `subgroupMatrixLoad<Left, row_major>(&tile,`.
struct Call {
  std::string type, order, array;
  std::string function() const { return (type.empty() ? "store" : "load_" + type) + "_" + order + "_" + array; }
  friend bool operator<(const Call& a, const Call& b) { return a.function() < b.function(); }
};

/// Replaces the calls whose text begins with `start` and adds them to `calls`.
void replaceCalls(std::string& text, std::string_view start, std::set<Call>& calls) {
  for (size_t at = 0; (at = text.find(start, at)) != std::string::npos;) {
    const size_t open = at + start.size(), close = text.find('>', open), array = text.find('&', close) + 1;
    Call call;
    const std::string arguments = text.substr(open, close - open);  // "Left, row_major" or "row_major"
    const size_t comma = arguments.find(',');
    if (comma != std::string::npos) call.type = arguments.substr(0, comma);
    call.order = arguments.find("row_major") != std::string::npos ? "row" : "column";
    size_t end = array;
    while (isName(text[end])) ++end;
    call.array = text.substr(array, end - array);
    const std::string replacement = call.function() + "(";
    text.replace(at, text.find(',', end) + 1 - at, replacement);
    at += replacement.size();
    calls.insert(std::move(call));
  }
}

Result<std::string> elementType(const std::string& text, const std::string& array) {
  const std::string declaration = "var<workgroup> " + array + ":array<";
  ETWGPU_ASSIGN(const size_t declared, find(text, declaration));
  const size_t at = declared + declaration.size();
  return text.substr(at, text.find(',', at) - at);
}

/// The first member of the kernel's parameters.
Result<std::string> firstMember(const std::string& text) {
  ETWGPU_ASSIGN(const size_t at, find(text, "struct Params {"));
  const size_t begin = text.find_first_not_of(" \n", at + 15);
  return text.substr(begin, text.find(':', begin) - begin);
}

/// One 16-bit element: number i of a row that begins at vector `at`.
std::string half(const std::string& array, const std::string& type) {
  const char* per = type == "vec4u" ? "8u" : "4u";
  return format("f16(unpack2x16float(%s[at + i / %s][i %% %s / 2u])[i %% 2u])", array.c_str(), per, per);
}

Result<std::string> functionOf(const Call& c, const std::string& text, int size, int piece) {
  ETWGPU_ASSIGN(const std::string type, elementType(text, c.array));
  const std::string name = c.function();
  if (c.type.empty()) {
    // Whole vectors, since two lanes may not write components of one.
    std::string f = format("fn %s(offset: u32, c: Sums, stride: u32) {\n", name.c_str());
    f += format("  if (emulated_lane >= %uu) { return; }\n", unsigned(size * size / piece));
    f += "  let at = offset + emulatedRow() * stride + emulatedColumn() / 4u;\n";
    for (int i = 0; i < piece; i += 4) {
      const std::string v = format("vec4f(c.v[%d], c.v[%d], c.v[%d], c.v[%d])", i, i + 1, i + 2, i + 3);
      f += format("  %s[at + %du] = %s;\n", c.array.c_str(), i / 4,
                  type == "vec4f" ? v.c_str() : ("bitcast<vec4u>(" + v + ")").c_str());
    }
    return f + "}\n";
  }
  const bool left = c.type == "Left", rows = c.order == "row";
  std::string f =
      format("fn %s(offset: u32, stride: u32) -> %s {\n  var m: %s;\n", name.c_str(), c.type.c_str(), c.type.c_str());
  if (left) {  // a whole row (row-major only)
    f += "  let at = offset + emulatedRow() * stride;\n";
    f += format("  for (var i = 0u; i < emulated_size; i++) { m.v[i] = %s; }\n", half(c.array, type).c_str());
  } else if (rows) {  // element (k, column) lies in row k
    f += format("  for (var k = 0u; k < emulated_size; k++) { for (var j = 0u; j < %du; j++) {\n", piece);
    f += "    let at = offset + k * stride;\n    let i = emulatedColumn() + j;\n";
    f += format("    m.v[k * %du + j] = %s;\n  } }\n", piece, half(c.array, type).c_str());
  } else {
    f += format("  for (var j = 0u; j < %du; j++) { for (var i = 0u; i < emulated_size; i++) {\n", piece);
    f += "    let at = offset + (emulatedColumn() + j) * stride;\n";
    f += format("    m.v[i * %du + j] = %s;\n  } }\n", piece, half(c.array, type).c_str());
  }
  return f + "  return m;\n}\n";
}

}  // namespace

/// Of WGSL as tools/embed_wgsl.py writes it, without most spaces.
Result<std::string> emulateMatrices(std::string text, int size) {
  if (text.find("subgroup_matrix_result") == std::string::npos) return text;
  const int piece = std::max(4, size * size / kEmulatedLanes);  // elements of a result that a lane holds
  replaceAll(text, "enable chromium_experimental_subgroup_matrix;\n", "");
  for (const char* type : {"left<f16", "right<f16", "result<f32"}) {
    const std::string kind(type, std::find(type, type + 10, '<'));
    replaceAll(text, format("subgroup_matrix_%s, %d, %d>", type, size, size), "Emulated_" + kind);
  }
  replaceAll(text, "subgroupMatrixMultiplyAccumulate(", "emulatedMultiply(");
  std::set<Call> calls;
  replaceCalls(text, "subgroupMatrixLoad<", calls);
  replaceCalls(text, "subgroupMatrixStore<", calls);
  std::string functions = format(
      "struct Emulated_left { v: array<f16, %d> }\nstruct Emulated_right { v: array<f16, %d> }\n"
      "struct Emulated_result { v: array<f32, %d> }\nvar<private> emulated_lane: u32;\nvar<private> emulated_size: "
      "u32;\n"
      "fn emulatedRow() -> u32 { return emulated_lane %% %uu / %uu; }\n"
      "fn emulatedColumn() -> u32 { return emulated_lane %% %uu * %uu; }\n"
      "fn emulatedMultiply(a: Left, b: Right, c: Sums) -> Sums {\n  var sums = c;\n"
      "  for (var k = 0u; k < emulated_size; k++) { for (var j = 0u; j < %du; j++) {\n"
      "    sums.v[j] = fma(f32(a.v[k]), f32(b.v[k * %du + j]), sums.v[j]);\n  } }\n  return sums;\n}\n",
      size, size * piece, piece, unsigned(size * size / piece), unsigned(size / piece), unsigned(size / piece),
      unsigned(piece), piece, piece);
  if (calls.empty()) return Status(Code::internal, "WGSL of subgroup matrices that loads none");
  for (const Call& call : calls) {
    ETWGPU_ASSIGN(const std::string function, functionOf(call, text, size, piece));
    functions += function;
  }
  ETWGPU_ASSIGN(const std::string member, firstMember(text));
  ETWGPU_ASSIGN(const size_t begin, find(text, "@builtin(subgroup_id)"));
  ETWGPU_ASSIGN(const size_t body, find(text, "{\n", begin));
  text.replace(begin, body + 2 - begin,
               format(") {\n  let sg = li / %du;\n  let lane = li %% %du;\n  emulated_lane = lane;\n"
                      // not a constant, since unrolled loops would compile for minutes
                      "  emulated_size = %du + (params.%s >> 31u);\n",
                      kEmulatedLanes, kEmulatedLanes, size, member.c_str()));
  return text + functions;
}

}  // namespace etwgpu
