// The CPU delegate: whole graphs with and without passes, states, memory, and what it refuses.
#include <gtest/gtest.h>

#include "runtime/executor/cpu_kernel.h"
#include "tests/cpp/cpu_call.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

/// A file in memory; `addressable`: constants may be used in place.
class BytesSource final : public DataSource {
 public:
  explicit BytesSource(bool addressable) : addressable_(addressable) {}
  std::vector<uint8_t> bytes;
  std::string name() const override { return "test"; }
  uint64_t size() const override { return bytes.size(); }
  const uint8_t* data() const override { return addressable_ ? bytes.data() : nullptr; }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) std::memcpy(r.host, bytes.data() + r.offset, r.size);
    co_return Status();
  }

 private:
  bool addressable_;
};

struct Loaded {
  std::unique_ptr<BytesSource> source;
  NamedDataMap data;
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Delegate>> delegates;
  Status status;
};

Status finish(Task<Status> task) {
  task.start();
  return task.take();
}

void add(Loaded& l, const GraphBuilder& b) {
  auto created = l.backend->createDelegate(serialize(b.graph), l.data);
  l.status = created.ok() ? Status() : created.status();
  if (!created.ok()) return;
  auto delegate = std::move(created).value();
  std::vector<ReadRequest> requests;
  for (auto& [source, request] : delegate->takeReads()) requests.push_back(request);
  l.status = finish(l.source->read(requests));
  if (l.status.ok()) l.status = finish(delegate->finishLoading());
  l.delegates.push_back(std::move(delegate));
}

Loaded load(const GraphBuilder& b, const LoadOptions& options = {}, bool addressable = false) {
  Loaded l;
  l.source = std::make_unique<BytesSource>(addressable);
  for (const auto& [key, bytes] : b.data) {
    l.source->bytes.resize((l.source->bytes.size() + 255) / 256 * 256);
    l.data.entries[key] = {l.source.get(), l.source->bytes.size(), bytes.size()};
    l.source->bytes.insert(l.source->bytes.end(), bytes.begin(), bytes.end());
  }
  l.backend = makeCpuBackend(options);
  add(l, b);
  return l;
}

Status call(Delegate& d, std::vector<HostTensor> inputs, HostTensor& output, const ExecuteOptions& options = {}) {
  std::vector<DelegateArg> in, out(1);
  for (HostTensor& t : inputs) in.push_back({t.view(), false, 0});
  output.bytes.assign(1 << 16, 0);
  out[0].tensor = {output.dtype, {}, output.bytes.data(), {}, nullptr};
  const Status status = finish(d.execute(in, out, options));
  output.sizes = out[0].tensor.sizes;
  return status;
}

/// Logits of three calls: a prompt, a token, a prompt over the same positions.
std::vector<float> generate(Loaded& l) {
  std::vector<float> all;
  int64_t position = 0;
  for (int64_t s : {5, 1, 3}) {
    HostTensor out;
    const Status status =
        call(*l.delegates[0], {randomTensor({1, s, 16}, uint32_t(s)), integers({1}, {position})}, out);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return all;
    all.insert(all.end(), at(out), at(out) + elementCount(out.sizes));
    position += s;
  }
  return all;
}

TEST(CpuDelegate, DecoderIsTheSameWithAndWithoutPassesInPlaceAndRead) {
  const GraphBuilder b = decoder(2);
  std::vector<float> first;
  for (const char* disabled : {"", "all"})
    for (bool addressable : {false, true})
      for (int threads : {1, 2}) {
        LoadOptions options;
        options.threads = threads;
        options.disabled_passes = disabled;
        options.cache = CacheType::f32;
        Loaded l = load(b, options, addressable);
        ASSERT_TRUE(l.status.ok()) << l.status.message();
        const std::vector<float> logits = generate(l);
        if (first.empty()) first = logits;
        ASSERT_EQ(logits.size(), first.size());
        ASSERT_FALSE(first.empty());
        for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(logits[i], first[i], 1e-4) << disabled << " " << threads;
        // State remains: without a reset the later positions differ only by what was written, with one all is as at
        // first.
        ASSERT_TRUE(finish(l.backend->states().reset()).ok());
        EXPECT_EQ(generate(l), logits);
      }
}

uint64_t stateBytes(const Loaded& l) { return l.backend->memory().state; }

TEST(CpuDelegate, CachesAreF16UnlessExact) {
  constexpr uint64_t kWhole = 2 * 2 * 2 * 16 * 8 * 4;
  const GraphBuilder b = decoder(2);
  LoadOptions options;
  Loaded half = load(b, options);
  options.activations = Activations::exact;
  Loaded exact = load(b, options);
  EXPECT_EQ(stateBytes(half), kWhole / 2);
  EXPECT_EQ(stateBytes(exact), kWhole);
  options.cache = CacheType::f16;
  EXPECT_EQ(stateBytes(load(b, options)), kWhole / 2);
  options.disabled_passes = "all";
  EXPECT_EQ(stateBytes(load(b, options)), kWhole) << "operators that know no f16";
  const std::vector<float> a = generate(half), e = generate(exact);
  EXPECT_NE(a, e);
  ASSERT_EQ(a.size(), e.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], e[i], 1e-3);
}

TEST(CpuDelegate, ACacheThatAnotherMethodReadsIsF32) {
  const GraphBuilder b = decoder(2);
  Loaded l = load(b), wide = load(b, [] {
                        LoadOptions o;
                        o.cache = CacheType::f32;
                        return o;
                      }());
  const std::vector<float> before = generate(l), expected = generate(wide);
  const uint64_t whole = stateBytes(wide);
  GraphBuilder reader;
  const ValueId cache = reader.state("0.kc", {1, 2, 16, 8});
  reader.output(reader.binary("add", cache, cache, "twice", {1, 2, 16, 8}));
  for (Loaded* x : {&l, &wide}) {
    add(*x, reader);
    ASSERT_TRUE(x->status.ok()) << x->status.message();
  }
  HostTensor twice, twice_wide;
  ASSERT_TRUE(call(*l.delegates[1], {}, twice).ok());
  ASSERT_TRUE(call(*wide.delegates[1], {}, twice_wide).ok());
  float largest = 0;
  for (int64_t i = 0; i < 2 * 16 * 8; ++i) {
    ASSERT_NEAR(at(twice)[i], at(twice_wide)[i], 1e-2) << "what was written in f16";
    largest = std::max(largest, std::abs(at(twice)[i]));
  }
  EXPECT_GT(largest, 0.1f);
  generate(l);  // keys of layer 0 are f32 now, and so are its values
  EXPECT_EQ(stateBytes(l), whole * 3 / 4);
}

TEST(CpuDelegate, ArgmaxInsteadOfReadingBack) {
  Loaded l = load(decoder(1));
  ASSERT_TRUE(l.status.ok());
  HostTensor out, unread;
  std::vector<HostTensor> in{randomTensor({1, 3, 16}, 1), integers({1}, {0})};
  ASSERT_TRUE(call(*l.delegates[0], in, out).ok());
  EXPECT_GT(l.delegates[0]->lastStats().read_back_bytes, 0u);
  std::vector<int32_t> ids;
  ExecuteOptions options;
  options.argmax_output = 0;
  options.ids = &ids;
  ASSERT_TRUE(call(*l.delegates[0], in, unread, options).ok());
  EXPECT_EQ(l.delegates[0]->lastStats().read_back_bytes, 0u);
  ASSERT_EQ(ids.size(), 1u);
  const float* p = at(out);
  EXPECT_EQ(ids[0], std::max_element(p, p + out.sizes.back()) - p);
}

TEST(CpuDelegate, ProfileNamesEveryNode) {
  Loaded l = load(decoder(1));
  std::vector<DispatchTime> times;
  ExecuteOptions options;
  options.profile = &times;
  HostTensor out;
  ASSERT_TRUE(call(*l.delegates[0], {randomTensor({1, 3, 16}, 1), integers({1}, {0})}, out, options).ok());
  EXPECT_EQ(times.size(), l.delegates[0]->graph().nodes.size());
}

TEST(CpuDelegate, RefusesSizesOutsideTheBounds) {
  Loaded l = load(decoder(1));
  HostTensor out;
  Status status = call(*l.delegates[0], {randomTensor({1, 16, 16}, 1), integers({1}, {0})}, out);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("1 to 15"), std::string::npos) << status.message();
  status = call(*l.delegates[0], {randomTensor({1, 3, 17}, 1), integers({1}, {0})}, out);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  status = call(*l.delegates[0], {integers({1, 3, 16}, std::vector<int64_t>(48)), integers({1}, {0})}, out);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  status = call(*l.delegates[0], {randomTensor({1, 3, 16}, 1), integers({1}, {14})}, out);
  EXPECT_EQ(status.code(), Code::invalid_argument) << "positions beyond the cache";
  EXPECT_TRUE(call(*l.delegates[0], {randomTensor({1, 3, 16}, 1), integers({1}, {0})}, out).ok())
      << "usable after errors";
}

TEST(CpuDelegate, MissingKernelsAllAtOnceWithCounts) {
  GraphBuilder b;
  ValueId x = b.input("x", DType::f32, {4});
  for (const char* op : {"aten.nonsense.default", "aten.other.default", "aten.nonsense.default"})
    x = b.node(op, {x}, op, {4});
  b.output(x);
  const Loaded l = load(b);
  EXPECT_EQ(l.status.code(), Code::unsupported_operator);
  EXPECT_NE(l.status.message().find("aten.nonsense.default (2)"), std::string::npos) << l.status.message();
  EXPECT_NE(l.status.message().find("aten.other.default (1)"), std::string::npos);
}

TEST(CpuDelegate, MemoryIsReportedSharedAndCapped) {
  const GraphBuilder b = decoder(2);
  uint64_t weights = 0;
  for (const auto& [key, bytes] : b.data) weights += bytes.size();
  Loaded l = load(b);
  ASSERT_TRUE(l.status.ok());
  const MemoryReport one = l.backend->memory();
  EXPECT_LE(one.weights, weights);
  EXPECT_GT(one.weights, weights / 2);
  EXPECT_EQ(one.state, 2u * 2 * 2 * 16 * 8 * 2) << "caches are f16";
  EXPECT_LT(one.arena, one.arena_without_reuse);
  add(l, b);  // a second method of the same program: weights, states and arena are shared
  ASSERT_TRUE(l.status.ok());
  const MemoryReport two = l.backend->memory();
  EXPECT_EQ(two.weights, one.weights);
  EXPECT_EQ(two.state, one.state);
  EXPECT_EQ(two.arena, one.arena);
  LoadOptions small;
  small.memory_cap = one.weights / 2;
  const Loaded refused = load(b, small);
  EXPECT_EQ(refused.status.code(), Code::limit_exceeded);
  EXPECT_NE(refused.status.message().find("'"), std::string::npos) << "names what didn't fit";
}

}  // namespace
}  // namespace etwgpu::testing
