// The next unit of a thread, whichever way its records go.
#include "dftrace/recording/retention.hpp"

#include <new>

#include "dftrace/recording/flight_recorder.hpp"
#include "dftrace/recording/stream.hpp"
#include "dftrace/recording/thread.hpp"

namespace dftrace {

bool add_reason(std::string& reasons, std::string_view more) noexcept {
    constexpr std::string_view between = "; ";
    constexpr std::size_t most = 4096;  // the disk may be full for long, and one after another ask
    for (std::size_t at = reasons.find(more); at != reasons.npos; at = reasons.find(more, at + 1)) {
        const std::string_view before = std::string_view(reasons).substr(0, at);
        const std::string_view after = std::string_view(reasons).substr(at + more.size());
        if ((before.empty() || before.ends_with(between)) && (after.empty() || after.starts_with(between)))
            return true;
    }
    if (!reasons.empty() && reasons.size() + more.size() > most) return true;
    const std::size_t length = reasons.size();
    try {
        reasons.append(reasons.empty() ? "" : between).append(more);
    } catch (const std::bad_alloc&) {
        reasons.resize(length);
        return false;
    }
    return true;
}

UnitHeader* Retention::next_unit(Thread& thread) noexcept {
    const std::uint64_t given_back = times_given_back();
    const std::uint64_t before = thread.unit->before.load(std::memory_order_relaxed) + thread.unit->capacity;
    // Nothing came back since the refusal: no need to ask.
    UnitHeader* unit =
        thread.refused_at == given_back + 1 ? nullptr : take(UnitKind::ring, thread.number, 1, before);
    if (!unit) {
        thread.refused_at = given_back + 1;
        return same_unit_again(thread);
    }
    thread.refused_at = 0;
    // Release: a drain thread that sees the link sees the header behind it.
    thread.unit->next.store(spool_.index_of(unit), std::memory_order_release);
    unit_left(thread);
    return unit;
}

std::unique_ptr<Retention> make_retention(const TraceSettings& settings, Spool& spool, Retention::Wake wake) {
    if (settings.flight_recorder)
        return std::make_unique<FlightRecorder>(spool, std::move(wake), settings.flight_ns);
    return std::make_unique<Stream>(spool, std::move(wake));
}

}  // namespace dftrace
