// The pool of the process, and what becomes of it in a forked child.
#include "dftrace/tensor/worker_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "dftrace/system/signals_blocked.hpp"

namespace dftrace::tensor {

namespace {

constexpr unsigned most_threads = 256;

struct Job {
    std::atomic<std::size_t> next{0};
    std::size_t count;
    void (*task)(void*, std::size_t);
    void* context;

    void work() {
        for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
             i = next.fetch_add(1, std::memory_order_relaxed))
            task(context, i);
    }
};

class Pool {
  public:
    // False when another caller's job is being worked on.
    bool run(Job& job, unsigned helpers) {
        const std::unique_lock caller(caller_, std::try_to_lock);
        if (!caller) return false;
        {
            std::lock_guard lock(mutex_);
            start_threads(helpers);
            job_ = &job;
            wanted_ = std::min(helpers, threads_);
        }
        work_.notify_all();
        job.work();
        std::unique_lock lock(mutex_);
        job_ = nullptr;
        wanted_ = 0;
        done_.wait(lock, [this] { return working_ == 0; });
        return true;
    }

    unsigned threads() {
        std::lock_guard lock(mutex_);
        return threads_;
    }

  private:
    void start_threads(unsigned wanted) {
        const SignalsBlocked blocked;
        while (threads_ < std::min(wanted, most_threads)) {
            try {
                std::thread thread([this] { serve(); });
                pthread_setname_np(thread.native_handle(), "dftrace-tensor");
                thread.detach();
            } catch (const std::system_error&) {
                return;  // with fewer threads it takes longer, and is as right
            }
            ++threads_;
        }
    }

    [[noreturn]] void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            work_.wait(lock, [this] { return wanted_ > 0; });
            --wanted_;
            ++working_;
            Job* job = job_;
            lock.unlock();
            job->work();
            lock.lock();
            if (--working_ == 0) done_.notify_one();
        }
    }

    std::mutex caller_;  // held from the beginning of a job to its end
    std::mutex mutex_;   // guards what follows
    std::condition_variable work_, done_;
    Job* job_ = nullptr;
    unsigned threads_ = 0;
    unsigned wanted_ = 0;   // threads that may still join the job
    unsigned working_ = 0;  // threads that are in the job
};

std::atomic<Pool*> the_pool{nullptr};

// The threads of the parent's pool do not exist here, and its locks may be held by them. It stays
// where it is: the memory is the parent's, and nothing refers to it any more.
void after_fork_in_child() { the_pool.store(nullptr, std::memory_order_relaxed); }

// Before any thread can be forked from: a child that finds it half done would wait for ever.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

Pool& pool() {
    Pool* present = the_pool.load(std::memory_order_acquire);
    if (present) return *present;
    Pool* made = new Pool;
    if (the_pool.compare_exchange_strong(present, made, std::memory_order_acq_rel)) return *made;
    delete made;  // another thread was quicker
    return *present;
}

}  // namespace

void for_each_index(std::size_t count, unsigned threads, void (*task)(void*, std::size_t), void* context) {
    Job job;
    job.count = count;
    job.task = task;
    job.context = context;
    const std::size_t useful = std::min<std::size_t>(threads, count);
    if (useful > 1 && pool().run(job, static_cast<unsigned>(useful - 1))) return;
    job.work();
}

unsigned pool_threads() noexcept {
    Pool* present = the_pool.load(std::memory_order_acquire);
    return present ? present->threads() : 0;
}

}  // namespace dftrace::tensor
