// Blocks into the parts of a trace, one part after another, and files that somebody removed or cut.
#include "dftrace/writing/trace_blocks.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

#include "dftrace/system/clock.hpp"
#include "dftrace/system/first_exception.hpp"
#include "dftrace/system/signals_blocked.hpp"

namespace dftrace {

namespace {

// Of a part, for its end.
constexpr std::size_t footer_room = 1024;

Losses difference(const Losses& all, const Losses& told) {
    return {all.dropped - told.dropped, all.waits - told.waits, all.unmatched_stops - told.unmatched_stops,
            all.args_sanitised - told.args_sanitised, all.drain_cpu_us - told.drain_cpu_us};
}

}  // namespace

TraceBlocks::TraceBlocks(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid,
                         const LineFormatter& formatter, const Tracks& tracks)
    : settings_(settings),
      header_(header),
      parent_pid_(parent_pid),
      formatter_(formatter),
      tracks_(tracks),
      codec_(make_codec(settings.compression, settings.compression_level)),
      parts_(header, file_stem(settings, header.pid), suffix_of(settings.compression), settings.file_mode),
      index_(settings.max_file_bytes != 0) {}

std::uint64_t TraceBlocks::lines_written() const noexcept {
    return events_of(parts_.lines()) + events_of(parts_.earlier_lines());
}

void TraceBlocks::enter(TraceStage stage) noexcept {
    gathered_.facts.stage = std::max(gathered_.facts.stage, stage);
}

// What every part begins with.
void TraceBlocks::begin(ByteBuffer& out, std::uint32_t part) const {
    const HostClocks& clocks = looks_at_clocks_ ? header_.look_at_clocks() : header_.last_clocks();
    formatter_.opening(out);
    formatter_.header(out, parent_pid_, tick_source.name(), part, ProcessIdentity::of(header_),
                      clocks.keeping);
    formatter_.clocks(out, clocks);
    tracks_.tell_names(out);
}

void TraceBlocks::tell_clocks_after_a_minute() {
    constexpr std::uint64_t minute_ns = 60'000'000'000;
    const auto last_ns = static_cast<std::uint64_t>(header_.last_clocks().boottime_ns);
    if (looks_at_clocks_ && clock_ns(CLOCK_BOOTTIME) - last_ns >= minute_ns)
        formatter_.clocks(gathered_.text, header_.look_at_clocks());
}

// Who completes the trace of another process does not know how the clocks stood when that ended.
ClockKeeping TraceBlocks::tell_clocks_at_end(ByteBuffer& out) const {
    if (!looks_at_clocks_) return {};
    const HostClocks& clocks = header_.look_at_clocks();
    formatter_.clocks(out, clocks);
    return clocks.keeping;
}

void TraceBlocks::open() {
    if (opened_) return;
    ByteBuffer head;
    begin(head, parts_.part());
    gathered_.text.append(head.view());
    opened_ = true;
}

// Without memory it is told in its own part alone.
void TraceBlocks::keep_fact(std::uint32_t node, std::string_view name, std::string_view line) noexcept {
    // Who completes a trace may come to the record of one that it knows.
    if (std::ranges::find(facts_, line, &Fact::line) != facts_.end()) return;
    try {
        facts_.push_back({node, std::string(name), std::string(line)});
    } catch (const std::bad_alloc&) {
        return;
    }
}

void TraceBlocks::know_fact(std::uint32_t node, std::string_view name, std::string_view line) {
    facts_.push_back({node, std::string(name), std::string(line)});
    facts_landed_ = facts_.size();
}

void TraceBlocks::compress_ahead(unsigned threads) noexcept {
    // The beginning of a part depends on what is written when the part before it is full.
    constexpr std::size_t largest_block = 4u << 20;  // several of them are held
    if (settings_.compression != Compression::none && !settings_.max_file_bytes &&
        settings_.block_bytes <= largest_block)
        threads_ahead_ = threads;
}

int TraceBlocks::end_block() {
    if (threads_ahead_ && !ahead_) {
        ahead_ =
            std::make_unique<BlocksAhead>(settings_.compression, settings_.compression_level, threads_ahead_);
        threads_ahead_ = 0;
        if (!ahead_->threads()) ahead_.reset();
    }
    if (!ahead_) return flush();
    if (ahead_->full())
        if (const int error = write_oldest()) return error;
    GatheredBlock block = std::exchange(spare_, {});
    std::swap(block.text, gathered_.text);
    block.reach = std::exchange(gathered_.reach, {});
    block.facts = {lines(), tracks_.lanes_made(), stage(), std::exchange(gathered_.facts.touched, {})};
    ahead_->put(std::move(block));
    return 0;
}

int TraceBlocks::write_oldest() {
    if (const int error = parts_.check_file()) return error;
    GatheredBlock block = ahead_->take();
    if (const int error = parts_.append(block.compressed, block.text.size(), block.facts)) return error;
    tell_durable(block.facts.touched);
    index_.landed(block.text.line_breaks(), block.reach);
    block.text.clear();
    block.compressed.clear();
    spare_ = std::move(block);
    return 0;
}

void TraceBlocks::tell_durable(const TouchedUnits& touched) const {
    if (on_durable)
        for (const auto& [unit, scan] : touched) on_durable(unit, scan);
}

int TraceBlocks::flush() {
    while (ahead_ && !ahead_->empty())
        if (const int error = write_oldest()) return error;
    if (empty()) return 0;
    if (const int error = parts_.check_file()) return error;
    if (!complete_) {
        tell_clocks_after_a_minute();
        if (settings_.compression != Compression::none)
            codec_->append(gathered_.compressed, gathered_.text.view(),
                           facts_of_lines(gathered_.text, gathered_.reach));
        complete_ = true;
    }
    if (spoilt()) {
        FirstBlock first = first_of_next();
        give_up_part();
        put_first(std::move(first));
    }
    if (part_is_full())
        if (const int error = next_part()) return error;
    gathered_.facts.lanes = tracks_.lanes_made();
    if (const int error = parts_.append(block(), head_.plain_bytes + gathered_.text.size(), gathered_.facts))
        return error;
    const Head head = std::exchange(head_, {});
    const std::uint64_t line_breaks = head.line_breaks + gathered_.text.line_breaks();
    facts_landed_ = facts_.size();
    gathered_.text.clear();
    gathered_.compressed.clear();
    complete_ = false;
    index_.landed(line_breaks, std::exchange(gathered_.reach, {}));
    tell_durable(std::exchange(gathered_.facts.touched, {}));
    // A recovery formats lines ahead of what is written, and soon comes to its end.
    return stage() == TraceStage::complete || parts_.is_kept_to_its_file() ? 0 : write_index(false);
}

int TraceBlocks::put_tail(std::string_view lines) {
    ByteBuffer text;
    text.append(lines);
    std::string block;
    if (text.size()) codec_->append(block, text.view(), facts_of_lines(text, BlockReach::everywhere()));
    return parts_.put_tail(block);
}

bool TraceBlocks::part_is_full() const noexcept {
    return settings_.max_file_bytes && parts_.begun() && stage() != TraceStage::complete &&
           parts_.file_bytes() + block().size() + footer_room > settings_.max_file_bytes;
}

// Made before the part that is there is closed or given up: there may be no memory for it.
TraceBlocks::FirstBlock TraceBlocks::first_of_next() const {
    ByteBuffer head;
    begin(head, parts_.part() + 1);
    for (std::size_t i = 0; i < facts_landed_; ++i) head.append(facts_[i].line);
    FirstBlock first{{}, {head.size(), head.line_breaks()}, facts_landed_};
    codec_->append(first.bytes, head.view(), facts_of_lines(head, {}));
    first.bytes += block();
    return first;
}

void TraceBlocks::put_first(FirstBlock first) noexcept {
    gathered_.compressed = std::move(first.bytes);
    head_ = first.head;
    index_.begin_part();
    for (std::size_t i = 0; i < first.facts; ++i) {
        index_.add_other(facts_[i].node, facts_[i].name, 'M');
        count(Kind::metadata);
    }
}

// The gathered block becomes the first of another part. 0 or an errno.
int TraceBlocks::next_part() {
    if (const int error = write_index(true)) return error;
    const Losses losses = header_.losses();
    ByteBuffer end;
    Ending ending{"rotated"};
    ending.earlier_events = events_of(parts_.earlier_lines());
    ending.place = &header_.late_place;
    const ClockKeeping keeping = tell_clocks_at_end(end);
    formatter_.footer(end, parts_.lines(), difference(losses, parts_.told()),
                      parts_.plain_bytes() + end.size(), parts_.file_bytes(), ending, parts_.part(), keeping);
    std::string footer;
    codec_->append(footer, end.view(), facts_of_lines(end, {}));
    FirstBlock first = first_of_next();
    const LineCounts written = parts_.lines();
    if (const int error = parts_.close(footer, end.size(), losses)) return error;
    // From here on nothing can fail: the block without this head would be no beginning of a part.
    put_first(std::move(first));
    forget_lines(written);
    if (settings_.max_files) parts_.keep_last(settings_.max_files - 1);
    return 0;
}

void TraceBlocks::forget_lines(const LineCounts& written) noexcept {
    for (std::size_t kind = 0; kind < written.size(); ++kind) lines()[kind] -= written[kind];
}

// What is written to a file that has no name any more nobody ever reads: it goes into another part.
bool TraceBlocks::spoilt() const noexcept {
    return !parts_.is_kept_to_its_file() && stage() != TraceStage::complete && parts_.spoilt();
}

void TraceBlocks::give_up_part() noexcept {
    forget_lines(parts_.lines());
    const std::uint64_t gone = parts_.give_up_part();
    if (!std::exchange(spoilt_lines_, spoilt_lines_ + gone) && gone)
        std::fprintf(
            stderr,
            "dftrace: %s was removed or cut while it was written: the %llu events in it are gone, and "
            "the trace goes on in another file\n",
            parts_.path().c_str(), static_cast<unsigned long long>(gone));
}

int TraceBlocks::write_index(bool last) {
    std::string block;
    std::size_t plain_bytes = 0;
    const std::uint64_t file_bytes = parts_.file_bytes();
    try {
        std::size_t room = index_.room(file_bytes, last);
        if (settings_.max_file_bytes) {
            const std::uint64_t taken = file_bytes + footer_room;
            room = static_cast<std::size_t>(std::min<std::uint64_t>(
                room, settings_.max_file_bytes > taken ? settings_.max_file_bytes - taken : 0));
        }
        const std::string members = index_.members(parts_.plain_bytes(), room);
        if (members.empty()) return 0;
        ByteBuffer line;
        formatter_.index(line, members + (parts_.part() ? ",\"part\":" + std::to_string(parts_.part()) : ""));
        plain_bytes = line.size();
        codec_->append(block, line.view(), {.lines = 1, .holds = BlockHolds::index, .reach = {}});
        if (block.size() > room) {
            index_.tried(block.size(), false, file_bytes);
            return 0;
        }
    } catch (const std::bad_alloc&) {
        return 0;  // when there is memory again
    }
    const int error = parts_.append_aside(block, plain_bytes);
    if (!error) index_.tried(block.size(), true, parts_.file_bytes());
    // A disk without room has none for the next block either, which is kept and told of then.
    return parts_.is_kept_to_its_file() ? error : 0;
}

int TraceBlocks::finish(const Ending& ending, OpenLines& open_lines) {
    if (const int error = flush()) return error;
    if (spoilt()) {
        give_up_part();
        opened_ = false;
    }
    if (!opened_ && parts_.part() == 0) return 0;
    // Open spans of a dump stand at the end until the footer takes their place.
    if (parts_.begun() && open_lines.empty())
        if (const int error = write_index(true)) return error;
    open();
    // Of these no dump has told otherwise. In one write with the footer: who would finish this trace does
    // not know that they are told.
    for (const auto& [id, told] : open_lines.take_lost()) {
        gathered_.text.append(told);
        gathered_.reach = BlockReach::everywhere();  // nobody has looked at its times
        if (is_open_span(told))
            count_open_span();
        else
            count(Kind::span);
    }
    Ending told = ending;
    told.earlier_events = events_of(parts_.earlier_lines());
    told.place = &header_.late_place;
    const ClockKeeping keeping = tell_clocks_at_end(gathered_.text);
    formatter_.footer(gathered_.text, lines(), difference(header_.losses(), parts_.told()),
                      parts_.plain_bytes() + gathered_.text.size(), parts_.file_bytes(), told, parts_.part(),
                      keeping);
    enter(TraceStage::complete);
    auto end = std::make_unique<WrittenEnd>();
    end->from = parts_.file_bytes();
    end->text = gathered_.text.view();
    end->facts = facts_of_lines(gathered_.text, gathered_.reach);
    if (const int error = flush()) return error;
    end->path = parts_.path();
    end->file = parts_.file();
    end->to = parts_.file_bytes();
    end->codec = std::move(codec_);
    written_end_ = std::move(end);
    return 0;
}

int TraceBlocks::resume(std::string* tail) {
    std::string behind;
    if (const int error = parts_.resume(tail ? &behind : nullptr)) return error;
    if (tail) *tail = codec_->text(behind, max_tail_bytes);
    lines() = parts_.lines();
    if (parts_.next_write() == 1) return 0;
    index_.give_up();  // nothing is known of what is in the file
    const WriteMark& mark = header_.last_mark();
    // Nothing is written without the opening before it: a mark that says so is damaged.
    opened_ = !mark.closed && mark.file_bytes > 0;
    gathered_.facts.stage = mark.stage;
    return 0;
}

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
    throw_first_exception();
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
