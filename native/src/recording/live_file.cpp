// Making the file, and the thread that does.
#include "dftrace/recording/live_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

#include "dftrace/reading/live_spool.hpp"
#include "dftrace/reading/live_text.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"
#include "dftrace/system/waiting.hpp"

namespace dftrace {

namespace {

bool write_whole(const HeldFile& file, const std::string& text) {
    return ::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

struct LiveFile::Work {
    Work(std::uint32_t every, std::uint32_t file_mode, std::string spool_path)
        : every_ms(every), mode(file_mode), spool(std::move(spool_path)) {}

    const std::uint32_t every_ms;
    const std::uint32_t mode;
    const std::string spool;

    std::mutex mutex;  // guards all up to `gone`
    std::condition_variable asked;
    std::condition_variable over;
    std::string marker;  // beside which it is asked for; empty for nothing
    bool stop = false;
    bool gone = false;

    // The thread's own.
    HeldFile directory;
    std::string name;
    FileIdentity made;

    void loop() noexcept;
    void replace(const std::string& beside);
    bool make(const std::string& path, const std::string& text) noexcept;
    // To be used at once; -1 where the directory is gone.
    int directory_of_marker(const std::string& beside);
};

int LiveFile::Work::directory_of_marker(const std::string& beside) {
    // The program may have closed its number, or renamed it.
    if (directory.descriptor() < 0) directory.open_directory(directory_of(beside));
    return directory.descriptor();
}

void LiveFile::Work::replace(const std::string& beside) {
    const int where = directory_of_marker(beside);
    if (where < 0) return;
    name = name_in_directory(beside_marker(beside, live_suffix));
    // What lies there is another's: it stays, and this process is not told of.
    const int before = made.known() ? made.look_at(name.c_str(), where) : 0;
    struct stat info;
    const bool taken = fstatat(where, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (taken && (!made.known() || before)) return;
    const std::string text = live_text(look_into(spool, 0), every_ms, clock_ns(CLOCK_REALTIME));
    const std::string fresh = name_in_directory(beside_marker(beside, new_live_suffix));
    HeldFile file;
    int error = file.create_new(fresh, O_WRONLY, where);
    if (error == EEXIST && fstatat(where, fresh.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode) && info.st_uid == geteuid() && unlinkat(where, fresh.c_str(), 0) == 0)
        error = file.create_new(fresh, O_WRONLY, where);  // of a try that could not clear away
    if (error) return;
    if (mode != 0600) static_cast<void>(fchmod(file.descriptor(), mode));
    const FileIdentity identity = file.identity();
    const bool whole = write_whole(file, text);
    file.close();
    if (whole && renameat(where, fresh.c_str(), where, name.c_str()) == 0)
        made = identity;
    else
        identity.remove_at(fresh.c_str(), where);
}

void LiveFile::Work::loop() noexcept {
    pthread_setname_np(pthread_self(), "dftrace-live");
    std::unique_lock lock(mutex);
    while (!stop) {
        asked.wait(lock, [this] { return stop || !marker.empty(); });
        if (stop) break;
        const std::string beside = std::exchange(marker, {});
        lock.unlock();
        try {
            replace(beside);
        } catch (
            const std::exception&) {  // NOLINT: there may be memory the next time, and a spool that is whole
        }
        lock.lock();
    }
    lock.unlock();
    if (made.known()) made.remove_at(name.c_str(), directory.descriptor());
    directory.close();
    lock.lock();
    gone = true;
    over.notify_all();
}

void LiveFile::begin(std::uint32_t every_ms) noexcept {
    try {
        work_ = std::make_shared<Work>(every_ms, settings_.file_mode, spool_.path());
        std::thread([work = work_] { work->loop(); }).detach();
    } catch (const std::exception&) {
        work_.reset();  // no memory, or no more threads: the trace does without
    }
}

void LiveFile::write(const std::string& marker) noexcept {
    if (!work_ || marker.empty()) return;
    try {
        const std::lock_guard lock(work_->mutex);
        work_->marker = marker;
        work_->asked.notify_one();
    } catch (const std::exception&) {
        return;  // the next time
    }
}

void LiveFile::end(std::chrono::milliseconds most) noexcept {
    if (!work_) return;
    std::unique_lock lock(work_->mutex);
    work_->stop = true;
    work_->asked.notify_one();
    static_cast<void>(
        wait_until(work_->over, lock, SteadyClock::now() + most, [this] { return work_->gone; }));
    lock.unlock();
    work_.reset();
}

}  // namespace dftrace
