// Times that profilers have got wrong, found when all events of a document were seen.
//
// Public traces have events at the time 0 where nobody knew it, and activities of a GPU that last for days.
// Reckoned with as they are, either makes another run of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dftrace {

// Members of an event as JSON, empty where it has none.
struct TimedEvent {
    std::string_view ph, cat, pid, tid, ts, dur, args;
};

// What is to be done with the events of a document. All times are in ns.
struct Mending {
    std::int64_t first = 0, last = 0;                           // times before and behind these cannot be
    std::unordered_map<std::uint64_t, std::int64_t> durations;  // by numbers of events
    std::uint64_t left_out = 0;                                 // events at times that cannot be

    bool keeps(std::string_view ph, std::string_view ts) const;
};

class OddTimes {
  public:
    // `number` is what the event is called by in `Mending`.
    void add(std::uint64_t number, const TimedEvent& event);
    // `kineto`: the document says that torch.profiler has written it. Nothing where all times can be.
    std::optional<Mending> mending(bool kineto);

  private:
    // Times that lie close together.
    struct Together {
        explicit Together(std::int64_t at) : first(at), last(at), end(at), latest(at) {}
        void add(std::int64_t start, std::int64_t until);
        void join(const Together& later);
        std::int64_t first, last, end, latest;
        std::uint64_t count = 0, times = 1;
    };
    struct Activity {
        std::int64_t start, duration;
        std::uint64_t number;
        std::int64_t launch;  // -1 where it is not told
        std::int64_t end() const { return start + duration; }
    };
    using Stream = std::vector<Activity>;

    std::vector<Together> groups() const;
    void cut(const Together& most, std::unordered_map<std::uint64_t, std::int64_t>& durations);

    bool kineto_ = false;
    std::unordered_map<std::int64_t, Together> together_;
    Together* recent_ = nullptr;
    std::int64_t recent_bucket_ = 0;
    std::unordered_map<std::string, Stream> streams_;
    Stream around_;
    Stream long_;  // what the host has done for hours; a profiler has rarely seen that
};

}  // namespace dftrace
