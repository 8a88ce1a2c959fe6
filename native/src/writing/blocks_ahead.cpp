// A queue of blocks: put in, compressed and taken out in the same order.
#include "dftrace/writing/blocks_ahead.hpp"

#include <system_error>

#include "dftrace/system/signals_blocked.hpp"

namespace dftrace {

BlocksAhead::BlocksAhead(Compression compression, int level, unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) codecs_.push_back(make_codec(compression, level));
    workers_.reserve(threads);
    const SignalsBlocked blocked;
    try {
        for (auto& codec : codecs_) workers_.emplace_back([this, &codec] { work(*codec); });
    } catch (const std::system_error&) {
        // There may be no more threads: those that were begun do, and without any the caller does it.
    }
}

BlocksAhead::~BlocksAhead() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    waiting_has_some_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void BlocksAhead::put(GatheredBlock block) {
    blocks_.push_back(std::make_unique<Job>());
    Job* job = blocks_.back().get();
    job->block = std::move(block);
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(job);
    }
    waiting_has_some_.notify_one();
}

GatheredBlock BlocksAhead::take() {
    const std::unique_ptr<Job> job = std::move(blocks_.front());
    blocks_.pop_front();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return job->done; });
    if (job->failure) std::rethrow_exception(job->failure);
    return std::move(job->block);
}

void BlocksAhead::work(BlockCodec& codec) {
    std::unique_lock lock(mutex_);
    for (;;) {
        waiting_has_some_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
        if (stop_) return;
        Job& job = *waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        std::exception_ptr failure;
        try {
            codec.append(job.block.compressed, job.block.text.view(),
                         facts_of_lines(job.block.text, job.block.reach));
        } catch (...) {
            failure = std::current_exception();  // told by `take`
        }
        lock.lock();
        job.failure = failure;
        job.done = true;
        done_.notify_all();
    }
}

}  // namespace dftrace
