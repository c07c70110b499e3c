// To be preloaded: counts the bytes that a program has from the heap, and of what libraries map
// themselves the pages that are in memory: oneDNN maps 256 KiB or more for each function that it
// writes, and fills a few pages. (Where huge pages are given unasked it may be all of them.) Writes
// the most of the one and the most of the other, which need not be of one moment, as one sum to the
// file that TANDEM_PEAK_HEAP names, with a launcher's rank behind it. Shared memory is not counted.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

// Mappings that are counted. Never destroyed: libraries unmap when the program ends, too.
struct Mappings {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> bytes;  ///< by their start
  std::size_t most_resident = 0;
};
Mappings& mappings() {
  static auto* const all = new Mappings;
  return *all;
}

std::size_t resident_bytes(std::uintptr_t start, std::size_t bytes) {
  constexpr std::size_t kPage = 4096, kPages = 1024;
  std::array<unsigned char, kPages> pages;
  std::size_t resident = 0;
  for (std::size_t at = 0; at < bytes; at += kPage * kPages) {
    const std::size_t length = std::min(bytes - at, kPage * kPages);
    if (mincore(reinterpret_cast<void*>(start + at), length, pages.data()) == 0) {
      resident += kPage * static_cast<std::size_t>(std::count_if(
                              pages.begin(),
                              pages.begin() + static_cast<long>((length + kPage - 1) / kPage),
                              [](unsigned page) { return (page & 1) != 0; }));
    }
  }
  return resident;
}

/// To be called before pages are unmapped, and at the end, by who has the mutex.
void note_resident() {
  std::size_t sum = 0;
  for (const auto& [start, bytes] : mappings().bytes) {
    sum += resident_bytes(start, bytes);
  }
  mappings().most_resident = std::max(mappings().most_resident, sum);
}

void mapped(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mappings().mutex);
  mappings().bytes[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
}

/// Whole mappings, or what is cut off their ends.
void unmapped(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mappings().mutex);
  auto& all = mappings().bytes;
  const auto start = reinterpret_cast<std::uintptr_t>(memory), stop = start + bytes;
  auto at = all.upper_bound(start);
  at = at == all.begin() ? at : std::prev(at);
  bool noted = false;
  while (at != all.end() && at->first < stop) {
    const std::uintptr_t first = at->first, last = first + at->second;
    if (last <= start) {
      ++at;
      continue;
    }
    if (!noted) {
      note_resident();
      noted = true;
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
      note_resident();
      std::fprintf(out, "%ld\n", most.load() + static_cast<long>(mappings().most_resident));
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
  if (memory != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_SHARED) == 0 &&
      protection != PROT_NONE) {
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
