// Damaged programs: every mutation of a small .pte gives a typed error or runs, without a crash, a hang, or memory
// beyond what the damaged file declares (or the undamaged one, where the damage hides that) and 64 MiB. What runs gives
// outputs as its methods declare them; those of the undamaged file, where only bytes changed that no part of it owns.
//
//   etwgpu_fuzz [--count 10000] [--seed 1] [--only INDEX] FILE.pte…
//
// Mutation i of a seed is always the same; a failure prints the arguments that repeat it. Prints as its last line
// {"passed": n, "failed": m}, where a mutation that takes the process down counts as failed and the rest goes on.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/executor/session.h"
#include "runtime/program/json_value.h"
#include "runtime/program/sources.h"
#include "tests/fuzz/allocations.h"

namespace etwgpu::fuzz {
namespace {

constexpr uint64_t kCap = 256 << 20;
constexpr uint64_t kSlack = 64 << 20;
constexpr unsigned kSecondsPerMutation = 30;  // under sanitizers; a mutation takes milliseconds
constexpr int kBatch = 500;                   // mutations per process

using Bytes = std::vector<uint8_t>;

/// Serves reads without being addressable, as a download does.
class StreamSource final : public DataSource {
 public:
  explicit StreamSource(const Bytes& bytes) : bytes_(bytes) {}
  std::string name() const override { return "mutated.pte"; }
  uint64_t size() const override { return bytes_.size(); }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) {
      if (r.offset > bytes_.size() || r.size > bytes_.size() - r.offset)
        co_return Status(Code::io_error, "beyond the end");
      std::memcpy(r.host, bytes_.data() + r.offset, r.size);
    }
    co_return Status();
  }

 private:
  const Bytes& bytes_;
};

template <class T>
T finish(Task<T> task) {
  task.start();
  if (!task.done()) {
    std::fprintf(stderr, "a task on the CPU did not end\n");
    std::abort();
  }
  return task.take();
}

struct Fixture {
  std::string path;
  Bytes bytes;
  std::vector<FileRange> targets;  // the flatbuffer, payloads: where structure is; and padding
  std::vector<bool> owned;         // per byte: part of the flatbuffer or of a segment
  uint64_t declared = 0;           // bytes of memory
  std::string results;             // of all runs
};

Bytes readFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

Fixture loadFixture(const std::string& path) {
  Fixture f;
  f.path = path;
  f.bytes = readFile(path);
  const auto source = makeMemoryView(path, f.bytes);
  const auto program = finish(readProgram(*source, kCap));
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().message().c_str());
    std::exit(2);
  }
  const Program& p = **program;
  f.owned.assign(f.bytes.size(), false);
  const auto own = [&](const FileRange& r) { std::fill_n(f.owned.begin() + int64_t(r.offset), r.size, true); };
  own({0, p.head.size()});
  for (const FileRange& r : p.segments) own(r);
  const auto padding = std::find(f.owned.begin(), f.owned.end(), false);
  const auto next = std::find(padding, f.owned.end(), true);
  if (padding != next) f.targets.push_back({uint64_t(padding - f.owned.begin()), uint64_t(next - padding)});
  f.targets.push_back({0, p.head.size()});
  f.targets.push_back({0, std::min<uint64_t>(64, p.head.size())});
  for (const Method& m : p.methods) {
    for (const DelegateInfo& d : m.delegates) {
      if (d.segment >= 0) f.targets.push_back(p.segments[size_t(d.segment)]);
    }
  }
  return f;
}

class Mutator {
 public:
  Mutator(const std::vector<Fixture>& fixtures, uint64_t seed) : fixtures_(fixtures), random_(seed) {}

  Bytes make(const Fixture*& of, std::string& what) {
    const Fixture& f = fixtures_[below(fixtures_.size())];
    of = &f;
    Bytes bytes = f.bytes;
    what = f.path + ":";
    const int steps = below(3) ? 1 : 1 + int(below(6));
    for (int i = 0; i < steps && !bytes.empty(); ++i) step(f, bytes, what);
    return bytes;
  }

 private:
  uint64_t below(uint64_t n) { return n ? std::uniform_int_distribution<uint64_t>(0, n - 1)(random_) : 0; }

  /// A position, mostly inside of the flatbuffers.
  uint64_t place(const Fixture& f, const Bytes& bytes) {
    if (below(8) == 0) return below(bytes.size());
    const FileRange& r = f.targets[below(f.targets.size())];
    return std::min<uint64_t>(r.offset + below(r.size), bytes.size() - 1);
  }

  uint64_t number(const Bytes& bytes) {
    const uint64_t size = bytes.size();
    const uint64_t chosen[] = {0,
                               1,
                               2,
                               3,
                               4,
                               7,
                               8,
                               0x7f,
                               0x80,
                               0xff,
                               0x100,
                               0x7fff,
                               0xffff,
                               0x7fffffff,
                               0x80000000,
                               0xffffffff,
                               0x100000000,
                               0x7fffffffffffffff,
                               0x8000000000000000,
                               0xffffffffffffffff,
                               size,
                               size - 1,
                               size + 1,
                               size / 2};
    return below(4) ? chosen[below(std::size(chosen))] : random_();
  }

  void step(const Fixture& f, Bytes& bytes, std::string& what) {
    const uint64_t at = place(f, bytes);
    const auto room = [&](uint64_t n) { return std::min<uint64_t>(n, bytes.size() - at); };
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        bytes[at] ^= uint8_t(1 << below(8));
        what += " flip@" + std::to_string(at);
        break;
      case 3:
      case 4: {  // a length, an offset, a dimension, an index
        const uint64_t width = uint64_t(1) << below(4), aligned = at / width * width;
        const uint64_t v = number(bytes);
        std::memcpy(&bytes[aligned], &v, std::min<uint64_t>(width, bytes.size() - aligned));
        what += " number@" + std::to_string(aligned);
        break;
      }
      case 5: {  // a little more or less
        bytes[at] = uint8_t(bytes[at] + (below(2) ? 1 : -1) * int(1 + below(4)));
        what += " nudge@" + std::to_string(at);
        break;
      }
      case 6:
        bytes.resize(below(3) ? at : bytes.size() - room(1 + below(64)));
        what += " truncate to " + std::to_string(bytes.size());
        break;
      case 7: {  // bytes of a program elsewhere
        const Fixture& other = fixtures_[below(fixtures_.size())];
        const uint64_t from = below(other.bytes.size());
        const uint64_t n = std::min(room(1 + below(64)), other.bytes.size() - from);
        std::memcpy(&bytes[at], &other.bytes[from], n);
        what += " splice@" + std::to_string(at);
        break;
      }
      case 8: {
        const uint64_t n = room(1 + below(32));
        std::fill_n(bytes.begin() + int64_t(at), n, below(2) ? 0 : 0xff);
        what += " fill@" + std::to_string(at);
        break;
      }
      default: {  // everything behind moves
        const uint64_t n = 1 + below(16);
        if (below(2)) {
          bytes.insert(bytes.begin() + int64_t(at), n, uint8_t(below(256)));
        } else {
          bytes.erase(bytes.begin() + int64_t(at), bytes.begin() + int64_t(at + room(n)));
        }
        what += " shift@" + std::to_string(at);
      }
    }
  }

  const std::vector<Fixture>& fixtures_;
  std::mt19937_64 random_;
};

/// Inputs at the bounds, or of one element a dimension where the damaged bounds are huge.
std::vector<Input> inputsFor(const MethodSpec& method, std::vector<HostTensor>& storage) {
  storage.reserve(method.inputs.size());
  std::vector<Input> inputs;
  for (const ValueSpec& v : method.inputs) {
    switch (v.kind) {
      case ValueSpec::Kind::tensor: {
        HostTensor t;
        if (isValidDType(v.scalar_type)) t.dtype = DType(v.scalar_type);
        uint64_t bytes = dtypeSize(t.dtype);
        for (int64_t s : v.sizes) bytes = s > 4096 ? UINT64_MAX : std::min<uint64_t>(bytes, 1 << 20) * uint64_t(s);
        for (int64_t s : v.sizes) t.sizes.push_back(bytes > (1 << 20) ? std::min<int64_t>(s, 1) : s);
        t.bytes.assign(size_t(elementCount(t.sizes)) * dtypeSize(t.dtype), 0);
        // integers may be indices: 0 is one; floats that make a difference
        for (size_t i = 0; t.dtype == DType::f32 && i < t.bytes.size() / sizeof(float); ++i) {
          const float x = float(i % 7) * 0.5f - 1;
          std::memcpy(&t.bytes[i * sizeof x], &x, sizeof x);
        }
        storage.push_back(std::move(t));
        inputs.emplace_back(storage.back().view());
        break;
      }
      case ValueSpec::Kind::number:
        inputs.emplace_back(0.5);
        break;
      case ValueSpec::Kind::flag:
        inputs.emplace_back(true);
        break;
      default:
        inputs.emplace_back(int64_t(1));
    }
  }
  return inputs;
}

struct Outcome {
  std::map<std::string, int> codes;  // how each load or run ended, what was compared
  std::string results;               // of the runs of one program
};

Result<std::unique_ptr<Session>> load(const Bytes& bytes, bool stream, bool inspect_only) {
  SessionConfig config;
  config.options.memory_cap = kCap;
  config.options.activations = Activations::exact;
  if (stream) {
    config.source = std::make_unique<StreamSource>(bytes);
  } else {
    config.source = makeMemoryView("mutated.pte", bytes);
  }
  config.inspect_only = inspect_only;
  if (!inspect_only) config.backend = makeCpuBackend(config.options);
  return finish(Session::load(std::move(config)));
}

/// The memory that a program declares: arenas, states and what its delegates plan. Without what lies in the file
/// itself, which is small. At least `otherwise` where a delegate's plan cannot be read.
uint64_t declaredBytes(const Session& inspected, uint64_t otherwise) {
  const auto json = parseJson(inspected.inspectJson());
  if (!json.ok()) return otherwise;
  uint64_t sum = 0, least = 0;
  const auto add = [&](const JsonValue* v) {
    const auto bytes = v ? v->count() : std::nullopt;  // none, too, above 2^53
    if (!v) least = otherwise;
    if (v && __builtin_add_overflow(sum, bytes.value_or(UINT64_MAX), &sum)) sum = UINT64_MAX;
  };
  const JsonValue* memory = json->find("memory");
  add(memory->find("arenas"));
  add(memory->find("state"));
  for (const JsonValue& method : json->find("methods")->items) {
    for (const JsonValue& delegate : method.find("delegates")->items) add(delegate.find("arena_bytes"));
  }
  return std::max(sum, least);
}

/// A message, unless these are the method's outputs in number, kinds, dtypes and shapes. A dynamic dimension is at most
/// its bound.
std::string checkOutputs(const MethodSpec& method, const std::vector<OutputValue>& outputs) {
  if (outputs.size() != method.outputs.size()) return format("%zu outputs", outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueSpec& spec = method.outputs[i];
    const auto* t = std::get_if<HostTensor>(&outputs[i]);
    if (!t != (spec.kind != ValueSpec::Kind::tensor)) return format("output %zu is of another kind", i);
    if (!t) continue;
    bool fits = t->sizes.size() == spec.sizes.size() && int(t->dtype) == spec.scalar_type &&
                t->bytes.size() == uint64_t(elementCount(t->sizes)) * dtypeSize(t->dtype);
    for (size_t d = 0; fits && d < spec.sizes.size(); ++d) {
      fits = spec.dynamic ? t->sizes[d] >= 0 && t->sizes[d] <= spec.sizes[d] : t->sizes[d] == spec.sizes[d];
    }
    if (!fits) {
      return format("output %zu is %s %s, declared is %s %s", i, std::string(dtypeName(t->dtype)).c_str(),
                    sizesToString(t->sizes).c_str(), scalarTypeName(spec.scalar_type).c_str(),
                    sizesToString(spec.sizes).c_str());
    }
  }
  return {};
}

/// Outputs as bytes, to compare.
std::string resultBytes(const std::vector<OutputValue>& outputs) {
  std::string all;
  for (const OutputValue& v : outputs) {
    all += std::to_string(v.index()) + " ";
    if (const auto* t = std::get_if<HostTensor>(&v)) {
      all += std::string(dtypeName(t->dtype)) + sizesToString(t->sizes);
      all.append(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
    } else if (const auto* i = std::get_if<int64_t>(&v)) {
      all += std::to_string(*i);
    } else if (const auto* d = std::get_if<double>(&v)) {
      all += std::to_string(*d);
    } else if (const auto* b = std::get_if<bool>(&v)) {
      all += std::to_string(*b);
    } else if (const auto* text = std::get_if<std::string>(&v)) {
      all += *text;
    }
  }
  return all;
}

/// Every method twice from the same states; a message if something is not as declared.
std::string runMethods(Session& s, Outcome& outcome) {
  s.setInstructionLimit(1000);
  for (const MethodSpec& method : s.methods()) {
    for (int i = 0; i < 2; ++i) {
      std::vector<HostTensor> storage;
      const auto result = finish(s.run(method.name, inputsFor(method, storage)));
      const std::string code(codeName(result.status().code()));
      ++outcome.codes["run " + code];
      outcome.results += code + " ";
      if (!result.ok()) continue;
      if (std::string failure = checkOutputs(method, *result); !failure.empty()) return method.name + ": " + failure;
      outcome.results += resultBytes(*result);
    }
    if (!finish(s.reset()).ok()) return "reset failed";
  }
  return {};
}

/// Loads, inspects and runs a program of which one without damage declares `declared` bytes. Returns a message if more
/// memory was taken or outputs are not as declared.
std::string tryProgram(const Bytes& bytes, uint64_t declared, bool stream, Outcome& outcome) {
  outcome.results.clear();
  startCounting();
  {
    const auto inspected = load(bytes, stream, true);
    if (inspected.ok()) declared = declaredBytes(**inspected, declared);
    const auto session = load(bytes, stream, false);
    ++outcome.codes["load " + std::string(codeName(session.status().code()))];
    if (session.ok()) {
      (void)(*session)->inspectJson();
      if (std::string failure = runMethods(**session, outcome); !failure.empty()) return failure;
    }
  }
  if (peakBytes() <= std::min(declared, kCap) + kSlack) return {};
  return format("%llu bytes were allocated, declared are %llu", (unsigned long long)peakBytes(),
                (unsigned long long)declared);
}

/// Whether all that belongs to a part of the undamaged file is as it was, in a file of the same size.
bool isWhole(const Fixture& f, const Bytes& bytes) {
  if (bytes.size() != f.bytes.size()) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (f.owned[i] && bytes[i] != f.bytes[i]) return false;
  }
  return true;
}

/// Shared with the child processes.
struct Progress {
  int current, passed, failed;
  char what[256];
  int codes[256];
};

struct Options {
  int count = 10000, only = -1;
  uint64_t seed = 1;
  std::vector<Fixture> fixtures;
};

void runRange(const Options& o, int begin, int end, Progress& progress, Outcome& outcome) {
  for (int i = begin; i < end; ++i) {
    progress.current = i;
    std::string what;
    const Fixture* of = nullptr;
    const Bytes bytes = Mutator(o.fixtures, o.seed * 1000003 + uint64_t(i)).make(of, what);
    std::snprintf(progress.what, sizeof progress.what, "%s", what.c_str());
    alarm(kSecondsPerMutation);
    std::string failure = tryProgram(bytes, of->declared, i % 2, outcome);
    alarm(0);
    if (failure.empty() && isWhole(*of, bytes)) {
      ++outcome.codes["compared"];
      if (outcome.results != of->results) failure = "other results, though nothing of the program has changed";
    }
    if (failure.empty()) {
      ++progress.passed;
    } else {
      ++progress.failed;
      std::printf("FAILED --seed %llu --only %d: %s: %s\n", (unsigned long long)o.seed, i, what.c_str(),
                  failure.c_str());
    }
  }
}

int runAll(const Options& o) {
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::printf("seed %llu, %d mutations of %zu programs\n", (unsigned long long)o.seed, o.count, o.fixtures.size());
  for (int next = 0; next < o.count;) {
    const int end = std::min(o.count, next + kBatch);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      Outcome outcome;
      runRange(o, next, end, *progress, outcome);
      std::string line;
      for (const auto& [name, count] : outcome.codes) line += " " + name + " " + std::to_string(count) + ",";
      std::printf("%d to %d:%s\n", next, end - 1, line.c_str());
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    next = end;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++progress->failed;
    std::printf("FAILED --seed %llu --only %d: %s: %s\n", (unsigned long long)o.seed, progress->current, progress->what,
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "did not end" : "crashed");
    next = progress->current + 1;
  }
  std::printf("{\"passed\": %d, \"failed\": %d}\n", progress->passed, progress->failed);
  return progress->failed ? 1 : 0;
}

}  // namespace
}  // namespace etwgpu::fuzz

int main(int argc, char** argv) {
  using namespace etwgpu::fuzz;
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--count" && has_value) {
      o.count = std::atoi(argv[++i]);
    } else if (arg == "--seed" && has_value) {
      o.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--only" && has_value) {
      o.only = std::atoi(argv[++i]);
    } else {
      o.fixtures.push_back(loadFixture(arg));
    }
  }
  if (o.fixtures.empty()) {
    std::fprintf(stderr, "usage: etwgpu_fuzz [--count N] [--seed S] [--only INDEX] FILE.pte...\n");
    return 2;
  }
  // as they are, they must load and run: else the mutations would test nothing
  for (Fixture& f : o.fixtures) {
    Outcome outcome;
    if (const auto inspected = load(f.bytes, false, true); inspected.ok()) f.declared = declaredBytes(**inspected, 0);
    const std::string failure = tryProgram(f.bytes, f.declared, false, outcome);
    f.results = outcome.results;
    if (!failure.empty() || !outcome.codes.count("run ok")) {
      std::fprintf(stderr, "%s does not run undamaged: %s\n", f.path.c_str(), failure.c_str());
      for (const auto& [name, count] : outcome.codes) std::fprintf(stderr, "  %s\n", name.c_str());
      return 2;
    }
  }
  if (o.only < 0) return runAll(o);
  Progress progress{};
  Outcome outcome;
  runRange(o, o.only, o.only + 1, progress, outcome);
  std::printf("%s\n", progress.what);
  for (const auto& [name, count] : outcome.codes) std::printf("%s: %d\n", name.c_str(), count);
  return progress.failed ? 1 : 0;
}
