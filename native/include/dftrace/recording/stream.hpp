// Records go to the trace file as they come, and stay in the spool no longer than until then.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "dftrace/recording/retention.hpp"

namespace dftrace {

class Stream final : public Retention {
  public:
    Stream(Spool& spool, Wake wake) : Retention(spool, std::move(wake)) {}

    void thread_over(Thread& thread) noexcept override;
    std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept override {
        return wanted;
    }
    std::optional<int> turn(RecordFlow& flow, bool write_out, std::string reason) override;
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
};

}  // namespace dftrace
