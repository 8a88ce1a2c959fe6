// The next unit of a thread, whichever way its records go.
#include "dftrace/recording/retention.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

#include "dftrace/recording/flight_recorder.hpp"
#include "dftrace/recording/record_flow.hpp"
#include "dftrace/recording/thread.hpp"
#include "dftrace/text/json_string.hpp"

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

int note_dump(RecordFlow& flow, Track& track, std::string_view reason, std::string_view more,
              std::uint64_t at_tick) {
    track.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
    track.name = "dftrace";
    std::string args = ",\"reason\":";
    append_json_string(args, reason);
    return flow.writer().note(R"("name":"dump","cat":"instant")", args.append(more), track,
                              flow.threads().new_ids(1), flow.clock().to_ns(at_tick));
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

namespace {

// Records go to the trace file as they come, and stay in the spool no longer than until then.
class Stream final : public Retention {
  public:
    Stream(Spool& spool, Wake wake) : Retention(spool, std::move(wake)) {}

    void thread_over(Thread& thread) noexcept override;
    std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept override {
        return wanted;
    }
    std::optional<int> turn(RecordFlow& flow, bool write_out, DumpRequest dump) override;
    int end(RecordFlow& flow, const Ending& ending) override;
    std::uint64_t release_moment() const noexcept override { return turns_; }
    // A record that names a snapshot was stored before the snapshot's release; one whole turn after the
    // release was seen, all such records are in the file.
    std::uint64_t settled_before() noexcept override { return turns_ - 1; }

  private:
    UnitHeader* same_unit_again(Thread& thread) noexcept override;
    void unit_left(Thread& thread) noexcept override;

    // Held while the drain thread looks at units. Guards how far each thread's last unit is written: its
    // marks, and `unit` and `scan` of the source.
    std::mutex looking_;
    std::uint64_t turns_ = 0;  // the drain thread's own
    std::atomic<std::uint32_t> threads_over_{0};
    Track own_track_;  // the drain thread's own, of what is said of dumps
};

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

std::optional<int> Stream::turn(RecordFlow& flow, bool write_out, DumpRequest dump) {
    std::lock_guard looking(looking_);
    ++turns_;
    TraceWriter& writer = flow.writer();
    if (const int error = flow.pass()) return error;
    if (!dump.stacks.empty())
        if (const int error = note_dump(flow, own_track_, dump.reason, dump.stacks, tick_source.now()))
            return error;
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

}  // namespace

std::unique_ptr<Retention> make_retention(const TraceSettings& settings, Spool& spool, Retention::Wake wake) {
    if (settings.flight_recorder) return make_flight_recorder(spool, std::move(wake), settings.flight_ns);
    return std::make_unique<Stream>(spool, std::move(wake));
}

}  // namespace dftrace
