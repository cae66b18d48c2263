// What a file is that is no program: people hand us error pages and pointers far more often than damaged programs.
#include <cstring>

#include "runtime/program/program.h"

namespace etwgpu {
namespace {

bool startsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

/// The first characters without a byte order mark and white space, in lower case.
std::string textStart(std::string_view bytes) {
  if (startsWith(bytes, "\xef\xbb\xbf")) bytes.remove_prefix(3);
  while (!bytes.empty() && (bytes[0] == ' ' || (bytes[0] >= '\t' && bytes[0] <= '\r'))) bytes.remove_prefix(1);
  std::string start(bytes.substr(0, 16));
  for (char& c : start) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return start;
}

bool isSafetensors(std::string_view bytes) {
  uint64_t header = 0;
  if (bytes.size() < 10) return false;
  std::memcpy(&header, bytes.data(), 8);
  return header > 1 && header < (uint64_t(1) << 32) && bytes[8] == '{' &&
         (bytes[9] == '"' || bytes[9] == '}' || bytes[9] == ' ');
}

/// ModelProto: field 1 (ir_version, a small varint), then field 2 (producer_name) or another length-delimited field.
bool isOnnx(std::string_view bytes) {
  return bytes.size() >= 4 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 0x20 &&
         (bytes[2] == 0x12 || bytes[2] == 0x1a || bytes[2] == 0x22 || bytes[2] == 0x3a || bytes[2] == 0x42);
}

/// What the bytes are instead, as the second half of a sentence; empty if nothing is recognised.
std::string_view otherKind(std::string_view bytes) {
  const std::string start = textStart(bytes);
  if (startsWith(start, "<!doctype") || startsWith(start, "<html") || startsWith(start, "<head") ||
      startsWith(start, "<body")) {
    return "is an HTML page, probably an error page of the server: check the URL";
  }
  if (startsWith(start, "<?xml")) return "is an XML document, probably an error of the storage server: check the URL";
  if (startsWith(bytes, "version https://git-lfs")) {
    return "is a Git-LFS pointer, not the file it stands for: fetch it with `git lfs pull`, or by the hub's download "
           "URL";
  }
  if (startsWith(bytes, "PK\x03\x04"))
    return "is a zip archive (a PyTorch checkpoint or .pt2?): export the model to a .pte first";
  if (startsWith(bytes, "\x1f\x8b"))
    return "is gzip-compressed: decompress it, or have the server send Content-Encoding: gzip";
  if (startsWith(bytes, "GGUF")) return "is a GGUF file: export the model to a .pte first";
  if (isSafetensors(bytes)) return "is a safetensors file (weights alone): export the model to a .pte first";
  if (startsWith(bytes, "EWGG") || (bytes.size() >= 8 && bytes.substr(4, 4) == "EWGG")) {
    return "is a delegate payload without its program";
  }
  if (bytes.size() >= 8 && bytes.substr(4, 4) == "TFL3") return "is a TensorFlow Lite model";
  if (isOnnx(bytes)) return "is an ONNX model: export the PyTorch model to a .pte instead";
  if (startsWith(start, "{")) return "is a JSON text";
  return {};
}

}  // namespace

Status checkFileKind(std::string_view file, std::span<const uint8_t> first, std::string_view identifier) {
  const std::string name(file);
  const std::string wanted = identifier == "FT01" ? ".ptd file of weights" : "ExecuTorch program (.pte)";
  if (first.empty()) return {Code::not_a_program, name + " is empty (0 bytes), not an " + wanted};
  const std::string_view bytes(reinterpret_cast<const char*>(first.data()), first.size());
  const std::string_view found = bytes.size() >= 8 ? bytes.substr(4, 4) : std::string_view();
  if (found == identifier) return {};
  if (found == "FT01")
    return {Code::not_a_program,
            name + " is a .ptd file of weights, not a program: load its .pte, with this file beside it"};
  if (found == "ET12") return {Code::not_a_program, name + " is a program (.pte), not a .ptd file of weights"};
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!found.empty() && found.substr(0, 2) == identifier.substr(0, 2) && digit(found[2]) && digit(found[3])) {
    return {Code::unsupported_version, name + " has format version " + std::string(found) + ", this runtime reads " +
                                           std::string(identifier) + ": use matching versions of exporter and runtime"};
  }
  if (const std::string_view kind = otherKind(bytes); !kind.empty())
    return {Code::not_a_program, name + " " + std::string(kind)};
  std::string hex;
  for (size_t i = 0; i < first.size() && i < 8; ++i) hex += format("%s%02x", i ? " " : "", unsigned(first[i]));
  return {Code::not_a_program, name + " is no " + wanted + ": bytes 4 to 7 should be \"" + std::string(identifier) +
                                   "\", it starts with " + hex};
}

}  // namespace etwgpu
