// One part of a trace after another, and files that somebody removed or cut.
#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>

#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

// Made before the part that is there is closed or given up: there may be no memory for it.
TraceWriter::FirstBlock TraceWriter::first_of_next() const {
    ByteBuffer head;
    begin(head, parts_.part() + 1);
    for (std::size_t i = 0; i < facts_landed_; ++i) head.append(facts_[i].line);
    FirstBlock first{{}, head.size(), line_breaks_ + head.line_breaks(), facts_landed_};
    codec_->append(first.bytes, head.view(), facts_of_lines(head, {}));
    first.bytes += block();
    return first;
}

void TraceWriter::put_first(FirstBlock first) noexcept {
    block_ = std::move(first.bytes);
    block_head_ = first.head;
    line_breaks_ = first.line_breaks;
    index_.begin_part();
    for (std::size_t i = 0; i < first.facts; ++i) {
        index_.add_other(facts_[i].node, facts_[i].name, 'M');
        count(Kind::metadata);
    }
}

// Without memory it is told in its own part alone.
void TraceWriter::keep_fact(std::uint32_t node, std::string_view name, std::string_view line) noexcept {
    try {
        facts_.push_back({node, std::string(name), std::string(line)});
    } catch (const std::bad_alloc&) {
        return;
    }
}

void TraceWriter::forget_lines(const LineCounts& written) noexcept {
    for (std::size_t kind = 0; kind < lines_.size(); ++kind) lines_[kind] -= written[kind];
}

// What is written to a file that has no name any more nobody ever reads: it goes into another part.
bool TraceWriter::spoilt() const noexcept {
    return !keeps_to_its_file_ && stage_ != TraceStage::complete && parts_.spoilt();
}

void TraceWriter::give_up_part() noexcept {
    forget_lines(parts_.lines());
    const std::uint64_t gone = parts_.give_up_part();
    if (!std::exchange(spoilt_lines_, spoilt_lines_ + gone) && gone)
        std::fprintf(
            stderr,
            "dftrace: %s was removed or cut while it was written: the %llu events in it are gone, and "
            "the trace goes on in another file\n",
            path().c_str(), static_cast<unsigned long long>(gone));
}

// 0, or the errno with which a recovery ends whose file is gone: its spool then says of no record any more
// that it is in that file.
int TraceWriter::check_file() {
    if (!keeps_to_its_file_ || !parts_.spoilt()) return 0;
    file_was_spoilt_ = true;
    for (const auto& [unit, consumed] : consumed_before_part_) {
        unit->consumed = consumed;
        unit->pending_write = 0;
        if ((last_error_ = parts_.keep(*unit))) return last_error_;
    }
    return last_error_ = ESTALE;
}

}  // namespace dftrace
