// Traces that were written in several parts, and what must hold for all of them together.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scratch.hpp"
#include "trace_reader.hpp"

// All parts in a directory, in their order: each tells its number in its header.
std::vector<Trace> read_parts(const ScratchDir& dir);

// Checks that the parts are those from `first` on without a gap, that each is a complete trace of its own
// which names its tracks, and that no id stands twice. Returns the sums of the footers' counts.
std::map<std::string, std::uint64_t> check_parts(const std::vector<Trace>& parts, std::string_view ended,
                                                 std::uint64_t first = 0);

// The lines of spans of all parts, sorted, as `span_lines`.
std::vector<std::string> span_lines(const std::vector<Trace>& parts);
