// The lines of spans that were open when a flight recorder was dumped.
//
// They stand at the end of the file only until the next write, behind what the spool's marks tell of. Then
// each span is told anew: as a span if it has ended, or as open still. One of which nothing is known any
// more, since the flight recorder let go of its end, is told as it was at that dump.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dftrace {

class OpenLines {
  public:
    using Lines =
        std::map<std::uint64_t, std::string>;  // by id: of a thread, in the order of their beginnings

    // What stands at the end of a file whose process died; lines of no open span are passed over.
    void take_in(std::string_view text);
    // A dump begins, and has not seen any open span yet.
    void begin() { seen_.clear(); }
    void see(std::uint64_t id, std::string_view line) { seen_[id] = line; }
    // The span is told otherwise. True if it was waited for.
    bool settle(std::uint64_t id) noexcept { return (told_.erase(id) + seen_.erase(id)) != 0; }
    bool told(std::uint64_t id) const noexcept { return told_.contains(id); }
    // It has ended, and no dump is to tell of that: this line takes the place of the other.
    void replace(std::uint64_t id, std::string_view line) { told_[id] = line; }
    // Those told by the dump before of which nothing was seen since; they are not told any more.
    Lines take_lost();
    // What was seen is what stands at the end of the file from now on.
    std::string tell_seen();

    bool empty() const noexcept { return told_.empty() && seen_.empty(); }

  private:
    Lines told_;  // in the file
    Lines seen_;  // by the dump that is under way
};

bool is_open_span(std::string_view line) noexcept;
// The number of the track that a line lies on, 0 if it has none.
std::uint32_t track_of(std::string_view line) noexcept;
// The same line on another track.
std::string on_track(std::string_view line, std::uint32_t track);

}  // namespace dftrace
