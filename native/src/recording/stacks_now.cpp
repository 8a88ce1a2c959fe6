// One look at all threads, by a reader that is made for it: also where nothing is sampled.
#include "dftrace/recording/stacks_now.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dftrace/recording/sampler.hpp"
#include "dftrace/stacks/profile.hpp"
#include "dftrace/stacks/stack_reader.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

constexpr int most_rounds = 8;                            // until each thread has stood still for once
constexpr int most_frames = 100;                          // of a stack, the inner ones
constexpr std::size_t most_bytes = std::size_t{1} << 18;  // of all of them

std::uint64_t boot_ns() { return clock_ns(CLOCK_BOOTTIME); }

struct NoFork {
    NoFork() noexcept { Sampler::hold_ticks(); }
    ~NoFork() { Sampler::go_on(); }
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
};

std::string stack_text(const StackReader& reader, const CodePlaces& places, std::uint32_t stack) {
    std::string text;
    for (int i = 0; stack != StackNode::no_caller && i < most_frames; ++i) {
        const StackNode& node = reader.nodes()[stack];
        text += text.empty() ? "[" : ",";
        append_json_string(text,
                           places.of(reader.names()[node.code]).shown(places.tells_files() ? node.line : 0));
        stack = node.caller;
    }
    return text + "]";
}

}  // namespace

std::string stacks_now(const TraceSettings& settings) {
    const InterpreterLayout* layout = interpreter_layout();
    const MemoryWay way = layout && !settings.lines_roots.empty() ? find_memory_way() : MemoryWay::none;
    if (way == MemoryWay::none) return {};
    StackReader reader(*layout, way, boot_ns);
    const CodePlaces places(settings.lines_roots, settings.lines_files);
    std::vector<StackSample> samples;
    const auto is_read = [&](pid_t thread) {
        return std::ranges::find(samples, thread, &StackSample::thread) != samples.end();
    };
    std::vector<pid_t> unread;
    for (int round = 0; round < most_rounds && (!round || !unread.empty()); ++round) {
        const NoFork no_fork;
        reader.sample([&](pid_t thread) { return !is_read(thread); }, samples);
        unread = reader.unread();
    }
    std::ranges::sort(samples, {}, &StackSample::thread);
    std::string text;
    std::size_t left_out = 0;
    const auto add = [&](pid_t thread, const std::string& more) {
        if (text.size() > most_bytes) {
            ++left_out;
            return;
        }
        text.append(text.empty() ? ",\"stacks\":[" : ",")
            .append("{\"thread\":")
            .append(std::to_string(thread));
        text.append(more).append("}");
    };
    for (const StackSample& one : samples) {
        const std::string stack = ",\"stack\":" + stack_text(reader, places, one.stack);
        add(one.thread, one.cut ? stack + ",\"cut\":1" : stack);
    }
    for (const pid_t thread : unread) add(thread, {});
    if (text.empty()) return text;
    text += "]";
    if (left_out) text.append(",\"left_out\":").append(std::to_string(left_out));
    return text;
}

}  // namespace dftrace
