// A descriptor in a process where others close numbers that are not theirs: before each use it is looked at
// whether the number still leads to the file.
//
// Programs that become daemons close every number there is, and double closes happen. The number then goes
// to the next file that is opened, and what was meant for ours would grow, cut or fill somebody else's.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

namespace dftrace {

// Room for a part of a file that nobody has written to yet, which a store into a mapping needs; 0 or an
// errno. A limit on the size of files ends no program.
int reserve_room(int file, std::size_t from, std::size_t bytes) noexcept;
// The same where others store to that part at this very moment, which is never written to: EOPNOTSUPP and the
// like where there is no such call.
int reserve_room_in_use(int file, std::size_t from, std::size_t bytes) noexcept;

// Which file it is, whatever becomes of its names and of the numbers that lead to it.
class FileIdentity {
  public:
    FileIdentity() = default;
    explicit FileIdentity(const struct stat& info) noexcept
        : device_(info.st_dev), inode_(info.st_ino), known_(true) {}

    bool known() const noexcept { return known_; }
    bool is(const struct stat& info) const noexcept {
        return known_ && info.st_ino == inode_ && info.st_dev == device_;
    }
    // 0 where the file lies at `path`, under that name; ENOENT where it does not, or the errno for which that
    // cannot be seen. A path that is no absolute one begins at `directory`.
    int look_at(const char* path, int directory = AT_FDCWD) const noexcept;
    bool is(const FileIdentity& other) const noexcept {
        return known_ && other.known_ && inode_ == other.inode_ && device_ == other.device_;
    }
    // Takes that name from it: as `look_at`, or the errno for which it keeps it.
    int remove_at(const char* path, int directory = AT_FDCWD) const noexcept;

  private:
    dev_t device_ = 0;
    ino_t inode_ = 0;
    bool known_ = false;
};

class HeldFile {
  public:
    HeldFile() = default;
    ~HeldFile() { close(); }
    HeldFile(const HeldFile&) = delete;
    HeldFile& operator=(const HeldFile&) = delete;

    // Makes a file that is not there yet, for its owner alone, or opens one that is; never through a link,
    // and not for programs that children execute. `access` is O_RDWR and the like. A path that is no absolute
    // one begins at `directory`. 0 or an errno.
    int create_new(const std::string& path, int access, int directory = AT_FDCWD) noexcept;
    int open(const std::string& path, int access, int directory = AT_FDCWD) noexcept;
    // A directory, to begin paths at; links that lead to it are followed.
    int open_directory(const std::string& path) noexcept;
    // What somebody else holds open, under a number of its own.
    int open_same(int number) noexcept;
    // Takes over what was opened this moment.
    int take(int number) noexcept { return hold(number); }
    // Makes a file that has no name yet, for its owner alone, and gives it one that nobody has.
    int create_nameless(const std::string& directory, int access) noexcept;
    int take_name(const std::string& path) const noexcept;
    // Opens the file again after somebody has closed it. ESTALE where another one lies there now.
    int open_again(const std::string& path, int access, int directory = AT_FDCWD) noexcept;
    // The number, or -1 with EBADF when it leads elsewhere: to be used at once, and asked for anew each time.
    int descriptor() const noexcept;
    // As `reserve_room`.
    int reserve(std::size_t from, std::size_t bytes) const noexcept {
        return reserve_room(descriptor(), from, bytes);
    }
    // A file was opened, whatever became of its number since.
    bool known() const noexcept { return file_.known(); }
    const FileIdentity& identity() const noexcept { return file_; }
    // Where the file lies by now, as the kernel tells it; empty where it does not, or there is no memory.
    std::string path_now() const noexcept;
    // No name leads to the file any more, as the kernel tells it.
    bool has_no_name() const noexcept;
    // No std::string, which may have to be made: there may be no memory.
    bool lies_at(const char* path, int directory = AT_FDCWD) const noexcept {
        return file_.look_at(path, directory) == 0;
    }
    // Closes the number, unless it is somebody else's by now.
    void close() noexcept;

  private:
    int hold(int number) noexcept;
    int let_owner_in() const noexcept;
    bool leads_here(int number) const noexcept;
    int number_ = -1;
    FileIdentity file_;
};

// What an errno means for somebody who has to do something about it: a limit on the size of files is told
// as such. Takes no memory, of which there may be none.
struct Reason {
    char text[256];
};
Reason reason_of(int error) noexcept;

}  // namespace dftrace
