// The thread that looks now and then at which line each thread is: by its ticks, samples become records.
//
// It holds no lock while it reads stacks but one that only a fork waits for, and waits for nobody.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dftrace/recording/blob_store.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/stacks/interpreter_layout.h"
#include "dftrace/stacks/profile.hpp"
#include "dftrace/stacks/stack_reader.hpp"

namespace dftrace {

// Where stacks of the interpreter of this process are found; without it none are read.
void set_interpreter_layout(const InterpreterLayout& layout) noexcept;
const InterpreterLayout* interpreter_layout() noexcept;

class Sampler {
  public:
    Sampler(const TraceSettings& settings, const InterpreterLayout& layout, MemoryWay way,
            ThreadRegistry& threads, BlobStore& blobs, Retention& retention);
    ~Sampler() { stop(); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    // Why it does not sample, for the user; empty where it does.
    std::string start();
    // Stores what it holds. Nothing is read afterwards.
    void stop() noexcept;
    // Has it store what it holds, and waits a moment for that.
    void store_now() noexcept;

    // Around a fork: no tick is under way.
    static void hold_ticks() noexcept;
    static void go_on() noexcept;
    static void after_fork_in_child() noexcept;

  private:
    // What is kept of a thread that is sampled.
    struct Sampled {
        Sampled(const StackReader& stacks, const CodePlaces& places) : profile(stacks, places) {}
        Profile profile;
        std::uint32_t chunks = 0;      // stored under the profile's number
        std::uint64_t first_tick = 0;  // of what is to be stored
        std::uint64_t round = 0;       // in which it was alive
        std::uint32_t stack = StackNode::no_caller;
        bool cut = false;
        std::uint64_t since_tick = 0;  // it stands there
        OpenSpan* told = nullptr;      // where that is told
        std::uint64_t told_since = 0;
        int unseen = 0;             // so many ticks since its last sample
        std::int64_t ready_ns = 0;  // what it had waited for a processor when its last chunk was stored
    };
    using Clock = std::chrono::steady_clock;

    // Whether it is time for one.
    bool wait_for_tick() noexcept;
    std::uint64_t late_periods(std::uint64_t now_ns) noexcept;
    void loop() noexcept;
    void tick();
    void store_all(bool now, bool last);
    void store(pid_t tid, Sampled& one);
    bool store_record(pid_t tid, Sampled& one);
    void tell_where_it_stands(pid_t tid, Sampled& one);
    void forget(Sampled& one) noexcept;
    void restart(Sampled& one) noexcept;
    void begin_anew() noexcept;
    std::uint64_t us_of(std::uint64_t ns) const noexcept;

    const TraceSettings& settings_;
    ThreadRegistry& threads_;
    BlobStore& blobs_;
    Retention& retention_;
    const CodePlaces places_;
    StackReader reader_;
    // Nodes may not be told by one part of a trace and meant in another.
    const bool each_alone_;
    Thread* own_ = nullptr;  // in which records are stored; no thread's
    std::uint32_t last_chunk_ = 0;
    std::unordered_map<pid_t, Sampled> sampled_;
    std::vector<LivingThread> living_;
    std::vector<StackSample> samples_;
    std::uint64_t random_;
    std::uint64_t due_ns_ = 0;   // when the next tick is
    std::uint64_t late_ns_ = 0;  // that ticks came late, as far as no sample stands for it
    std::uint64_t round_ = 0;
    Clock::time_point store_at_{};
    // What is asked of its thread, and the number by which that is woken.
    std::atomic<bool> stop_{false};
    std::atomic<bool> asked_to_store_{false};
    std::atomic<std::uint32_t> wakings_{0};
    std::atomic<std::uint32_t> storings_{0};  // that were asked for and are done
    std::thread thread_;
};

}  // namespace dftrace
