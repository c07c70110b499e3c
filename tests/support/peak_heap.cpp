// To be preloaded: counts the bytes that a program has from the heap and writes the most it had at
// a time to the file that TANDEM_PEAK_HEAP names, with a launcher's rank behind it. What libraries
// map themselves is counted too, by the pages that they wrote: oneDNN maps 256 KiB or more for each
// kernel and fills a few of them. Shared memory is not.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

std::atomic<long> now{0}, most{0};

void add(long bytes) {
  const long sum = now.fetch_add(bytes) + bytes;
  for (long seen = most.load(); sum > seen && !most.compare_exchange_weak(seen, sum);) {
  }
}

void* added(void* memory) {
  if (memory != nullptr) {
    add(static_cast<long>(malloc_usable_size(memory)));
  }
  return memory;
}

void take_off(void* memory) {
  if (memory != nullptr) {
    now.fetch_sub(static_cast<long>(malloc_usable_size(memory)));
  }
}

// Mappings that were counted. Never destroyed: libraries unmap when the program ends, too.
struct Mappings {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> bytes;  ///< by their start
};
Mappings& mappings() {
  static auto* const all = new Mappings;
  return *all;
}

std::size_t written_bytes(std::uintptr_t start, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  std::vector<unsigned char> pages((bytes + kPage - 1) / kPage);
  if (mincore(reinterpret_cast<void*>(start), bytes, pages.data()) != 0) {
    return bytes;
  }
  return kPage * static_cast<std::size_t>(
                     std::count_if(pages.begin(), pages.end(), [](int page) { return page & 1; }));
}

/// The most that was written of all mappings at a time, of which some are about to go. The caller
/// has the mutex.
std::size_t most_written() {
  static std::size_t highest = 0;
  std::size_t sum = 0;
  for (const auto& [start, bytes] : mappings().bytes) {
    sum += written_bytes(start, bytes);
  }
  return highest = std::max(highest, sum);
}

void mapped(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mappings().mutex);
  mappings().bytes[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
}

/// Whole mappings, or what is cut off their ends.
void unmapped(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mappings().mutex);
  most_written();
  auto& all = mappings().bytes;
  const auto start = reinterpret_cast<std::uintptr_t>(memory), stop = start + bytes;
  auto at = all.upper_bound(start);
  at = at == all.begin() ? at : std::prev(at);
  while (at != all.end() && at->first < stop) {
    const std::uintptr_t first = at->first, last = first + at->second;
    if (last <= start) {
      ++at;
      continue;
    }
    at = all.erase(at);
    if (first < start) {
      all[first] = start - first;
    }
    if (stop < last) {
      all[stop] = last - stop;
      break;
    }
  }
}

struct AtExit {
  ~AtExit() {
    const char* file = std::getenv("TANDEM_PEAK_HEAP");
    if (file == nullptr) {
      return;
    }
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    const std::string name = std::string(file) + "." + (rank == nullptr ? "0" : rank);
    if (std::FILE* out = std::fopen(name.c_str(), "w")) {
      const std::lock_guard lock(mappings().mutex);
      std::fprintf(out, "%ld\n", most.load() + static_cast<long>(most_written()));
      std::fclose(out);
    }
  }
} at_exit;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
// glibc's own names for what is replaced.
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) { return added(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) { return added(__libc_calloc(count, bytes)); }
void* realloc(void* memory, std::size_t bytes) {
  take_off(memory);
  void* larger = __libc_realloc(memory, bytes);
  added(larger == nullptr && bytes > 0 ? memory : larger);
  return larger;
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return added(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  take_off(memory);
  __libc_free(memory);
}

// Only what the program and its libraries call themselves: glibc's heap maps without these.
void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  static auto* const real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  void* memory = real(at, bytes, protection, flags, file, offset);
  if (memory != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0 && protection != PROT_NONE) {
    mapped(memory, bytes);
  }
  return memory;
}
void* mmap64(void* at, std::size_t bytes, int protection, int flags, int file, off64_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}
int munmap(void* memory, std::size_t bytes) {
  static auto* const real = next<int(void*, std::size_t)>("munmap");
  unmapped(memory, bytes);  // first: behind it the place may be another thread's
  return real(memory, bytes);
}
}
