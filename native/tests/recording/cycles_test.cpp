// Runs that begin and end, again and again: nothing is left behind.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "check.hpp"
#include "dftrace/spool/record.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

// The value of `key` in the last element of malloc_info's that begins with `element`.
std::uint64_t last_size(const std::string& xml, const std::string& element) {
    const std::size_t at = xml.find("size=\"", xml.rfind(element));
    return std::stoull(xml.substr(at + 6));
}

// Bytes that are allocated and not freed, of all threads; 0 where a sanitizer has its own allocator.
std::uint64_t heap_in_use() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;  // LeakSanitizer looks at the end
#else
    char* text = nullptr;
    std::size_t bytes = 0;
    std::FILE* file = open_memstream(&text, &bytes);
    REQUIRE(file && malloc_info(0, file) == 0);
    std::fclose(file);
    const std::string xml(text, bytes);
    std::free(text);
    return last_size(xml, "<system type=\"current\"") + last_size(xml, "<total type=\"mmap\"") -
           last_size(xml, "<total type=\"rest\"") - last_size(xml, "<total type=\"fast\"");
#endif
}

std::size_t threads() {
    const fs::directory_iterator tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
}

void one_run(const ScratchDir& dir, EventName& outer, EventName& inner) {
    start_run(dir.settings());
    {
        SpanScope a(outer);
        const std::uint32_t args = current_session()->put_arguments(",\"step\":7");
        SpanScope b(inner, args);
    }
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    CHECK_EQ(outcome.events, 2);
    fs::remove(outcome.trace_path);
}

}  // namespace

TEST("hundreds of further runs take no more memory, descriptors, threads or mappings") {
    const ScratchDir dir;
    EventName outer("cycles", "outer"), inner("cycles", "inner");
    const std::uint64_t half = scaled(500);
    for (std::uint64_t i = 0; i < half; ++i) one_run(dir, outer, inner);
    const std::size_t open = open_descriptors(), running = threads(), mapped = mappings();
    // What is ready to be used again counts as used, and comes once; what is lost comes each time.
    std::uint64_t least = UINT64_MAX;
    for (int part = 0; part < 3; ++part) {
        const std::uint64_t before = heap_in_use();
        for (std::uint64_t i = 0; i < half; ++i) one_run(dir, outer, inner);
        const std::uint64_t after = heap_in_use();
        least = std::min(least, after > before ? after - before : 0);
    }
    CHECK_EQ(open_descriptors(), open);
    CHECK_EQ(threads(), running);
    // The heap may get a part more, or one less.
    CHECK(mappings() <= mapped + 4);
    // Less than a pointer for each run.
    CHECK(least <= 8 * half);
    CHECK(dir.files().empty());
}
