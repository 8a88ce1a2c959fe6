// Work shared among threads that stay.
#include "dftrace/tensor/worker_pool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace dftrace::tensor;

namespace {

// Each index once: the number of indices that were not worked on exactly once.
std::size_t wrongly_done(std::size_t count, unsigned threads) {
    std::vector<std::atomic<int>> done(count);
    auto task = [&](std::size_t index) { done[index].fetch_add(1); };
    for_each_index(count, threads, task);
    std::size_t wrong = 0;
    for (const auto& times : done) wrong += times.load() != 1;
    return wrong;
}

}  // namespace

TEST("each index is worked on once, on however many threads") {
    for (unsigned threads = 0; threads < 9; ++threads)
        for (const std::size_t count : {0, 1, 2, 7, 1000}) CHECK_EQ(wrongly_done(count, threads), 0);
    CHECK(pool_threads() <= 8);
}

TEST("the threads stay, and their number does not grow with the calls") {
    wrongly_done(100, 4);
    const unsigned before = pool_threads();
    for (int i = 0; i < 200; ++i) wrongly_done(20, 3);
    CHECK_EQ(pool_threads(), before);
}

TEST("callers that come at once do not disturb each other") {
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i)
        callers.emplace_back([&] {
            for (int round = 0; round < 200; ++round) wrong += wrongly_done(50, 4);
        });
    for (auto& caller : callers) caller.join();
    CHECK_EQ(wrong.load(), 0);
}

TEST("a task may share work itself") {
    std::atomic<std::size_t> wrong{0};
    auto task = [&](std::size_t) { wrong += wrongly_done(10, 4); };
    for_each_index(8, 4, task);
    CHECK_EQ(wrong.load(), 0);
}

TEST("a forked child starts threads of its own") {
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer knows no threads in forked children");
#endif
    wrongly_done(100, 3);
    const pid_t child = fork();
    if (child == 0) {
        const bool none = pool_threads() == 0;
        _exit(none && wrongly_done(500, 3) == 0 && pool_threads() == 2 ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}
