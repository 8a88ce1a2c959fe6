// What a process is doing, told by any file that may be its spool.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/reading/live_spool.hpp"
#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"
#include "spool_program.hpp"

using namespace dftrace;

namespace {

void require_text(const std::string& text) {
    std::string json;
    append_json_string(json, text);
    if (text_of_json_string(json) != text) fail("another text", text);
}

void require_name(const LiveName& name) {
    require_text(name.name);
    require_text(name.category);
}

void require_span(const LiveSpan& span, const LiveSpool& spool) {
    if (span.name) require_name(*span.name);
    if (!is_json_members(span.args)) fail("no arguments", span.args);
    if (span.start_ns > spool.now_ns) fail("a span of the future", span.args);
}

void require_thread(const LiveThread& thread, const LiveSpool& spool) {
    for (const auto* spans : {&thread.open, &thread.tasks})
        for (const LiveSpan& span : *spans) require_span(span, spool);
    if (thread.open.size() > thread.depth) fail("more open spans than there are", thread.name);
    if (thread.last_ns && *thread.last_ns > spool.now_ns) fail("a record of the future", thread.name);
    std::uint64_t sum = 0;
    for (const auto& [name, ns] : thread.self_ns) {
        if (name) require_name(*name);
        if ((sum += ns) > thread.covered_ns) fail("more time than there was", thread.name);
    }
    for (const auto& [ns, args] : thread.newest_args)
        if (args.empty() || !is_json_members(args)) fail("no arguments", args);
    for (const LiveCall& call : thread.calls) {
        require_name(call.name);
        if (!is_json_members(call.args)) fail("no arguments", call.args);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    const MadeSpool made = make_spool(data, bytes);
    constexpr std::uint64_t window_ns = 60'000'000'000;
    try {
        const LiveSpool spool = look_into(made.path, window_ns);
        if (!is_json_members(spool.header)) fail("no header", spool.header);
        for (const LiveThread& thread : spool.threads) require_thread(thread, spool);
    } catch (const std::exception&) {
        // Refused in words, which is what a reader shows.
    }
    return 0;
}
