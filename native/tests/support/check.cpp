// Runs the registered tests and tells what failed.
#include "check.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include "dftrace/recording/runtime.hpp"

#ifdef __SANITIZE_THREAD__
// A number that the program closed may lead to another file of ours by now: that is what is asked.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
    return "race:dftrace::HeldFile::leads_here\n";
}
#endif

namespace check {

namespace {

struct Test {
    std::string suite;
    std::string name;
    void (*body)();
};

std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

std::string suite_of(std::string_view file) {
    file.remove_prefix(file.rfind('/') + 1);
    return std::string(file.substr(0, file.rfind("_test.cpp")));
}

std::atomic<int> failure_count{0};
std::mutex output_mutex;

enum class Result { passed, failed, skipped };

Result run(const Test& test) {
    const int before = failures();
    const auto start = std::chrono::steady_clock::now();
    std::string skipped;
    try {
        test.body();
    } catch (const Stopped&) {
    } catch (const Skipped& skip) {
        skipped = skip.reason;
    } catch (const std::exception& error) {
        failed(test.suite.c_str(), 0, std::string("exception: ") + error.what());
    }
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
    const Result result = failures() != before ? Result::failed
                          : skipped.empty()    ? Result::passed
                                               : Result::skipped;
    constexpr const char* words[] = {"ok", "FAILED", "skipped"};
    std::printf("%-8s%6lld ms  %s: %s%s%s\n", words[static_cast<int>(result)],
                static_cast<long long>(ms.count()), test.suite.c_str(), test.name.c_str(),
                skipped.empty() ? "" : ": ", skipped.c_str());
    std::fflush(stdout);
    return result;
}

}  // namespace

Registration::Registration(std::string_view file, std::string_view name, void (*body)()) {
    tests().push_back({suite_of(file), std::string(name), body});
}

void failed(const char* file, int line, std::string_view what) {
    failure_count.fetch_add(1);
    std::lock_guard lock(output_mutex);
    std::printf("  %s:%d: %.*s\n", file, line, static_cast<int>(what.size()), what.data());
    std::fflush(stdout);
}

int failures() noexcept { return failure_count.load(); }

}  // namespace check

int main(int count, char** arguments) {
    using namespace check;
    dftrace::prepare_runtime();
    int ran[3] = {};
    for (const Test& test : tests()) {
        bool wanted = count == 1;
        for (int i = 1; i < count; ++i) wanted |= test.suite == arguments[i] || test.name == arguments[i];
        if (wanted) ++ran[static_cast<int>(run(test))];
    }
    std::printf("%d passed, %d failed, %d skipped\n", ran[0], ran[1], ran[2]);
    if (ran[0] + ran[1] + ran[2] == 0) return EXIT_FAILURE;
    constexpr int all_skipped = 77;  // what ctest is told to take for "skipped"
    return ran[1] ? EXIT_FAILURE : ran[0] ? EXIT_SUCCESS : all_skipped;
}
