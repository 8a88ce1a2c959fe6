// Writing records as they come.
#include "dftrace/recording/stream.hpp"

#include "dftrace/recording/record_flow.hpp"

namespace dftrace {

void Stream::thread_over(Thread& thread) noexcept {
    thread.block->ended.store(1, std::memory_order_release);
    // Threads may come and go faster than the file is written: their units are wanted back.
    constexpr std::uint32_t batch = 32;
    if (threads_over_.fetch_add(1, std::memory_order_relaxed) % batch == batch - 1) wake_(true);
}

void Stream::unit_left(Thread&) noexcept { wake_(false); }

// If all of its records are in the file. It is the last of its chain, which nobody frees: threads that hold
// all units between them would else get none ever again.
UnitHeader* Stream::same_unit_again(Thread& thread) noexcept {
    // In the end: woken before, the drain thread itself might take the lock that is tried.
    const struct AtTheEnd {
        const Wake& wake;
        ~AtTheEnd() { wake(false); }
    } waking{wake_};
    // Not waited for: the drain thread holds it while it writes, on whatever file system that is.
    std::unique_lock looking(looking_, std::try_to_lock);
    if (!looking) return nullptr;
    UnitHeader* unit = thread.unit;
    if (unit->consumed != unit->capacity) return nullptr;
    Source& source = *thread.source;
    if (source.unit != unit || source.scan != unit->capacity) return nullptr;
    unit->start_over();
    source.scan = 0;
    return unit;
}

std::optional<int> Stream::turn(RecordFlow& flow, bool write_out, std::string) {
    std::lock_guard looking(looking_);
    ++turns_;
    TraceWriter& writer = flow.writer();
    if (const int error = flow.pass()) return error;
    if (write_out)
        if (const int error = writer.flush()) return error;
    if (writer.blocks().empty()) {
        flow.drop_ended_sources();
        flow.apply_releases();
    }
    if (!write_out) return std::nullopt;
    return 0;
}

int Stream::end(RecordFlow& flow, const Ending& ending) {
    std::lock_guard looking(looking_);
    TraceWriter& writer = flow.writer();
    if (const int error = flow.pass()) return error;
    if (const int error = writer.end_records()) return error;
    flow.write_unfinished();
    if (const int error = writer.lost_spans()) return error;
    return writer.finish(ending);
}

}  // namespace dftrace
