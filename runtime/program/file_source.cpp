// A file mapped into memory: constants are used in place, and pages that nobody reads cost nothing.
#if !defined(__EMSCRIPTEN__)

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/program/sources.h"

namespace etwgpu {
namespace {

class FileSource final : public DataSource {
 public:
  FileSource(std::string path, const uint8_t* data, uint64_t size)
      : path_(std::move(path)), view_(makeMemoryView(path_, {data, size})), data_(data), size_(size) {}
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override {
    if (size_) munmap(const_cast<uint8_t*>(data_), size_);
  }
  std::string name() const override { return path_; }
  uint64_t size() const override { return size_; }
  const uint8_t* data() const override { return data_; }
  Task<Status> read(std::vector<ReadRequest> requests) override { return view_->read(std::move(requests)); }

 private:
  std::string path_;
  std::unique_ptr<DataSource> view_;
  const uint8_t* data_;
  uint64_t size_;
};

/// What an empty file is mapped to: it is addressable like any other.
alignas(16) constexpr uint8_t kNothing[16] = {};

Status ioError(const std::string& path, const char* what) {
  return {Code::io_error, path + ": " + what + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::unique_ptr<DataSource>> openFileSource(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ioError(path, "cannot open");
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const Status status = ioError(path, "cannot stat");
    close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return {Code::io_error, path + ": not a regular file"};
  }
  const uint64_t size = uint64_t(info.st_size);
  void* data = const_cast<uint8_t*>(kNothing);
  if (size) data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const Status status = data == MAP_FAILED ? ioError(path, "cannot map") : Status();
  close(fd);
  if (!status.ok()) return status;
  return std::unique_ptr<DataSource>(std::make_unique<FileSource>(path, static_cast<const uint8_t*>(data), size));
}

}  // namespace etwgpu

#endif
