// Reading the parts of a trace.
#include "parts_reader.hpp"

#include <algorithm>
#include <set>

#include "check.hpp"
#include "dead_run.hpp"

namespace {

// The number in the header line; the first part does not tell one.
std::uint64_t part_number(const Trace& trace) {
    std::uint64_t number = 0;
    std::size_t headers = 0;
    trace.each([&](const TraceEvent& e) {
        if (e.name != "dftrace" || e.cat != "dftrace") return;
        ++headers;
        if (!e.arg("part").empty()) number = e.number("part");
    });
    CHECK_EQ(headers, 1);
    return number;
}

// A track that has a name in one part has it in all parts in which it has events.
void check_tracks_are_named(const std::vector<Trace>& parts) {
    std::vector<std::set<std::uint32_t>> named(parts.size()), used(parts.size());
    std::set<std::uint32_t> ever;
    for (std::size_t i = 0; i < parts.size(); ++i)
        parts[i].each([&](const TraceEvent& e) {
            if (e.name == "thread_name") named[i].insert(e.tid);
            if (e.ph == "X" || e.ph == "B" || e.ph == "i") used[i].insert(e.tid);
        });
    for (const auto& names : named) ever.insert(names.begin(), names.end());
    for (std::size_t i = 0; i < parts.size(); ++i)
        for (const std::uint32_t tid : used[i])
            if (ever.count(tid) && !named[i].count(tid))
                check::failed(__FILE__, __LINE__,
                              parts[i].path + " lacks the name of track " + std::to_string(tid));
}

}  // namespace

std::vector<Trace> read_parts(const ScratchDir& dir) {
    std::map<std::uint64_t, Trace> parts;
    for (const std::string& path : dir.files()) {
        if (path.find(".pfw") == std::string::npos) continue;
        Trace part = read_trace(path);
        const std::uint64_t number = part_number(part);
        CHECK_EQ(number != 0, path.find(".part" + std::to_string(number)) != std::string::npos);
        CHECK(parts.emplace(number, std::move(part)).second);
    }
    std::vector<Trace> all;
    for (auto& [number, part] : parts) all.push_back(std::move(part));
    return all;
}

std::map<std::string, std::uint64_t> check_parts(const std::vector<Trace>& parts, std::string_view ended,
                                                 std::uint64_t first) {
    std::map<std::string, std::uint64_t> sums;
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        CHECK_EQ(part_number(parts[i]), first + i);
        const bool last = i + 1 == parts.size();
        const Footer footer = check_complete(parts[i], last ? ended : "rotated");
        if (parts.size() > 1 || first) CHECK_EQ(footer.number("part"), first + i);
        for (const auto& [key, count] : footer.numbers) sums[key] += count;
        parts[i].each([&](const TraceEvent& e) {
            if (e.has_id && e.ph != "s" && e.ph != "f") ids.push_back(e.id);
        });
    }
    check_tracks_are_named(parts);
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
    return sums;
}

std::vector<std::string> span_lines(const std::vector<Trace>& parts) {
    std::vector<std::string> lines;
    for (const Trace& part : parts)
        for (std::string& line : span_lines(part)) lines.push_back(std::move(line));
    std::sort(lines.begin(), lines.end());
    return lines;
}
