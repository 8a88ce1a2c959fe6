// Appending to the parts of a trace, and going on where a dead process stopped.
#include "dftrace/writing/trace_parts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

namespace {

LineCounts sum(LineCounts a, const LineCounts& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}

}  // namespace

TraceParts::TraceParts(SpoolHeader& header, std::string stem, std::string suffix, std::uint32_t mode)
    : header_(header), stem_(std::move(stem)), suffix_(std::move(suffix)), mode_(mode) {}

int TraceParts::open_file() {
    // A write may have failed, and its file be gone: of what is named now no write was begun, and whoever
    // finishes this trace must not take somebody else's file of that name for ours.
    if (WriteMark& failed = header_.marks[next_write() % 2]; failed.file_bytes && failed.part == part_) {
        failed = {};
        if (const int error = keep(failed)) return error;
    }
    // Named in the spool before it is there: whoever finishes this trace finds the file even if the
    // process dies between the two.
    const std::string stem = part_ ? stem_ + ".part" + std::to_string(part_) : stem_;
    const int error = file_.create(
        stem, suffix_,
        [this](const std::string& path) {
            path_ = path;
            {
                std::lock_guard lock(written_mutex_);
                written_.path.reserve(path.size());  // what has landed is told without memory
                if (!written_.file_bytes) written_.path = path;
            }
            TracePath& named = header_.trace_paths[part_ % 2];
            named.set(part_, path);
            return keep(named);
        },
        mode_);
    if (error) return error;
    if (owner_) static_cast<void>(fchown(file_.descriptor(), owner_->user, owner_->group));
    struct stat made {};
    if (fstat(file_.descriptor(), &made) == 0) written_parts_.push_back({path_, FileIdentity(made)});
    return 0;
}

// Its number may be given away again: a second entry for one file would have the file deleted too early.
void TraceParts::forget_empty_file() noexcept {
    file_.close();
    if (!written_parts_.empty() && written_parts_.back().path == path_) written_parts_.pop_back();
}

int TraceParts::append(std::string_view block, std::size_t plain_bytes, const WriteFacts& facts) {
    const std::uint64_t number = next_write();
    for (const auto& [unit, scan] : facts.touched) {
        if (keeps_to_its_file_) consumed_before_part_.try_emplace(unit, unit->consumed);
        // In this order: killed between the two, it must not say that the last write, which landed, was
        // of the records of this one.
        unit->pending_write = number;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        unit->pending = scan;
        if (const int error = keep(*unit)) return error;
    }
    if (const int error = write(block, plain_bytes, facts.lines, facts.lanes, facts.stage, false))
        return error;
    for (const auto& [unit, scan] : facts.touched) {
        unit->consumed = scan;
        if (const int error = keep(*unit)) return error;
    }
    return 0;
}

int TraceParts::append_aside(std::string_view block, std::size_t plain_bytes) {
    const WriteMark& last = header_.last_mark();
    return write(block, plain_bytes, lines_, last.lanes, last.stage, false);
}

int TraceParts::write(std::string_view block, std::size_t plain_bytes, const LineCounts& lines,
                      std::uint32_t lanes, TraceStage stage, bool closes) {
    // Removed before anything was in it: the same part is made again.
    if (file_.is_open() && !begun() && file_.spoilt()) forget_empty_file();
    if (!file_.is_open())
        if (const int error = open_file()) return error;
    // Before a mark tells of the write: by its length the file would seem to have it already.
    if (const int error = file_.cut_tail()) return error;
    const std::uint64_t number = next_write();
    WriteMark& mark = header_.marks[number % 2];
    mark.file_bytes = file_.bytes() + block.size();
    mark.plain_bytes = plain_bytes_ + plain_bytes;
    mark.lines = lines;
    mark.earlier_lines = earlier_lines_;
    mark.told = told_;
    mark.lanes = lanes;
    mark.stage = stage;
    mark.part = part_;
    mark.closed = closes;
    if (const int error = keep(mark)) return error;
    header_.write_number.store(number, std::memory_order_release);
    int error = keep(header_.write_number);
    if (!error) error = file_.append(block);
    if (error) {
        // Not landed: the mark before this one holds again. Where even that cannot be kept the file tells.
        header_.write_number.store(number - 1, std::memory_order_release);
        static_cast<void>(keep(header_.write_number));
        return error;
    }
    header_.landed.store(number, std::memory_order_release);
    {
        std::lock_guard lock(written_mutex_);
        written_.path = path_;
        written_.file_bytes = mark.file_bytes;
        written_.lines = sum(lines, earlier_lines_);
    }
    if (const int unkept = keep(header_.landed)) return unkept;
    plain_bytes_ += plain_bytes;
    lines_ = lines;
    return 0;
}

int TraceParts::close(std::string_view footer, std::size_t plain_bytes, const Losses& told) {
    const Losses before = std::exchange(told_, told);
    const WriteMark& last = header_.last_mark();
    if (const int error = write(footer, plain_bytes, lines_, last.lanes, last.stage, true)) {
        told_ = before;
        return error;
    }
    go_on();
    consumed_before_part_.clear();
    return 0;
}

void TraceParts::go_on() {
    file_.close();
    earlier_lines_ = sum(earlier_lines_, lines_);
    lines_ = {};
    plain_bytes_ = 0;
    ++part_;
}

std::uint64_t TraceParts::give_up_part() noexcept {
    const std::uint64_t gone = events_of(lines_);
    lines_ = {};  // not among those of earlier parts, which are there
    go_on();
    return gone;
}

// A recovery whose file is gone: its spool then says of no record any more that it is in that file.
int TraceParts::check_file() {
    if (!keeps_to_its_file_ || !spoilt()) return 0;
    file_was_spoilt_ = true;
    for (const auto& [unit, consumed] : consumed_before_part_) {
        unit->consumed = consumed;
        unit->pending_write = 0;
        if (const int error = keep(*unit)) return error;
    }
    return ESTALE;
}

void TraceParts::lies_in(const Directory& directory) noexcept {
    directory_ = &directory;
    file_.lies_in(directory);
}

void TraceParts::keep_last(std::uint32_t keep) {
    for (; written_parts_.size() > keep; written_parts_.pop_front()) {
        const WrittenPart& oldest = written_parts_.front();
        static_cast<void>(oldest.file.remove_at(oldest.path.c_str()));  // another file may lie there by now
    }
}

std::string TraceParts::path_here(const TracePath& path) const {
    const std::string text = path.get();
    const auto directory = stem_.rfind('/');
    const auto name = text.rfind('/');
    return (directory == std::string::npos ? "" : stem_.substr(0, directory + 1)) +
           (name == std::string::npos ? text : text.substr(name + 1));
}

int TraceParts::resume_file(std::uint64_t bytes, std::string* tail) {
    return file_.resume(path_, bytes, owner_ ? std::optional(owner_->user) : std::nullopt, tail);
}

int TraceParts::resume(std::string* tail) {
    const std::uint64_t number = header_.write_number.load(std::memory_order_acquire);
    const WriteMark& mark = header_.last_mark();
    if (number) {
        part_ = mark.part;
        plain_bytes_ = mark.plain_bytes;
        lines_ = mark.lines;
        earlier_lines_ = mark.earlier_lines;
        told_ = mark.told;
        path_ = path_here(header_.trace_paths[part_ % 2]);
        if (!mark.closed) return resume_file(mark.file_bytes, tail);
        go_on();
    }
    // Nothing of this part has landed; there may be a piece. The file is ours if its first write was
    // begun, or if it is empty: it was made, or was about to be, by the process that named it. What else
    // has that name was there before, or came since: the part gets another one.
    const TracePath& named = header_.trace_paths[part_ % 2];
    const WriteMark& next = header_.marks[(number + 1) % 2];
    const bool begun = next.file_bytes != 0 && next.part == part_;
    if (named.bytes.load(std::memory_order_acquire) == 0 || named.part != part_) return 0;
    const std::string path = path_here(named);
    struct stat info;
    const int unseen =
        directory_ ? directory_->look(name_in_directory(path), info) : lstat(path.c_str(), &info);
    if (unseen) return 0;
    const bool may_be_ours = S_ISREG(info.st_mode) && info.st_size == 0 && info.st_nlink == 1 &&
                             (!owner_ || info.st_uid == owner_->user);
    if (!begun && !may_be_ours) return 0;
    path_ = path;
    return resume_file(0, nullptr);
}

}  // namespace dftrace
