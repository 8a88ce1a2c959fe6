// Threads that take blocks in turn.
#include "dftrace/reading/traces/members.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/system/read_at.hpp"
#include "dftrace/system/signals_blocked.hpp"

namespace dftrace {

namespace {

constexpr std::size_t first_step = 128 * 1024;
// The least that a block of gzip takes.
constexpr std::size_t least_gzip = 18;

struct Unpacked {
    std::size_t packed = 0;  // bytes of the block; 0 where it cannot be read here
    std::size_t plain = 0;
};

class Unpacker {
  public:
    explicit Unpacker(BlockCodec codec) : codec_(codec) {
        if (codec == BlockCodec::gzip)
            gzip_.reset(libdeflate_alloc_decompressor());
        else
            zstd_.reset(ZSTD_createDCtx());
        if (!gzip_ && !zstd_) throw std::bad_alloc();
    }
    // The block that `packed` begins with.
    Unpacked unpack(std::string_view packed, PlainText& text) {
        return codec_ == BlockCodec::gzip ? gzip(packed, text) : zstd(packed, text);
    }

  private:
    struct Free {
        void operator()(libdeflate_decompressor* d) const noexcept { libdeflate_free_decompressor(d); }
        void operator()(ZSTD_DCtx* d) const noexcept { ZSTD_freeDCtx(d); }
    };
    Unpacked gzip(std::string_view packed, PlainText& text) {
        if (packed.size() < least_gzip) return {};
        // The last four bytes say how much there is, if the block ends here.
        std::uint32_t said;
        std::memcpy(&said, packed.data() + packed.size() - 4, 4);
        // No byte makes more than 1,032.
        std::size_t room =
            std::min<std::size_t>({std::size_t{said} + 1, most_block_bytes, 1032 * packed.size()});
        for (;;) {
            Unpacked done;
            const auto result =
                libdeflate_gzip_decompress_ex(gzip_.get(), packed.data(), packed.size(), text.room_for(room),
                                              room, &done.packed, &done.plain);
            if (result == LIBDEFLATE_SUCCESS) return done;
            if (result != LIBDEFLATE_INSUFFICIENT_SPACE || room >= most_block_bytes) return {};
            room = std::min(most_block_bytes, 4 * room + 4096);
        }
    }
    Unpacked zstd(std::string_view packed, PlainText& text) {
        const std::size_t skipped = skippable_bytes(packed);
        if (skipped >= packed.size()) return {};
        packed.remove_prefix(skipped);
        const std::size_t bytes = ZSTD_findFrameCompressedSize(packed.data(), packed.size());
        const unsigned long long plain = ZSTD_getFrameContentSize(packed.data(), packed.size());
        // A frame without text is the general reader's.
        if (ZSTD_isError(bytes) || plain == 0 || plain > most_block_bytes) return {};
        const std::size_t got =
            ZSTD_decompressDCtx(zstd_.get(), text.room_for(plain), plain, packed.data(), bytes);
        return got == plain ? Unpacked{skipped + bytes, got} : Unpacked{};
    }

    BlockCodec codec_;
    std::unique_ptr<libdeflate_decompressor, Free> gzip_;
    std::unique_ptr<ZSTD_DCtx, Free> zstd_;
};

// The bytes of a file from a place on, as many as are asked for.
class Window {
  public:
    Window(int file, std::uint64_t end) : file_(file), end_(end) {}

    void begin_at(std::uint64_t place) noexcept {
        place_ = place;
        held_ = 0;
    }
    // At least so many of them, if there are.
    void want(std::size_t bytes) {
        bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, end_ - place_));
        if (bytes > bytes_.size()) bytes_.resize(bytes);
        while (held_ < bytes) {
            const std::ptrdiff_t got = read_at(file_, bytes_.data() + held_, bytes - held_, place_ + held_);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw std::system_error(errno, std::generic_category());
            if (got == 0) break;  // it is shorter than it was
            held_ += static_cast<std::size_t>(got);
        }
    }
    std::string_view bytes() const noexcept { return {bytes_.data(), held_}; }
    bool at_end() const noexcept { return place_ + held_ >= end_; }
    std::uint64_t left() const noexcept { return end_ - place_; }

  private:
    int file_;
    std::uint64_t end_;
    std::uint64_t place_ = 0;
    std::size_t held_ = 0;
    std::vector<char> bytes_;
};

// The length of the block that a window begins with: what it says itself, or where the next one seems to
// begin, by the first bytes of this one, or what the frames of zstd say. A wrong guess shows when the block
// is unpacked.
std::size_t guessed_length(BlockCodec codec, Window& window) {
    window.want(gzip_head_bytes);
    if (const std::optional<BlockFacts> facts = block_facts(window.bytes());
        facts && facts->packed_bytes <= most_block_bytes)
        return static_cast<std::size_t>(std::min<std::uint64_t>(facts->packed_bytes, window.left()));
    for (std::size_t step = first_step;;) {
        window.want(step);
        const std::string_view bytes = window.bytes();
        if (codec == BlockCodec::gzip) {
            constexpr std::size_t magic_bytes = 4;
            const std::size_t next = bytes.find(bytes.substr(0, magic_bytes), least_gzip);
            if (next != bytes.npos) return next;
        } else {
            const std::size_t skipped = std::min(skippable_bytes(bytes), bytes.size());
            const std::size_t length =
                ZSTD_findFrameCompressedSize(bytes.data() + skipped, bytes.size() - skipped);
            if (!ZSTD_isError(length)) return skipped + length;
        }
        if (window.at_end() || step >= most_block_bytes || bytes.size() < step) return bytes.size();
        step *= 2;
    }
}

// The block that the window begins with, of whole lines, if its length is guessed rightly or too short.
Unpacked unpack(Unpacker& unpacker, Window& window, std::size_t guess, PlainText& text) {
    Unpacked block;
    window.want(guess);
    for (std::size_t length = guess;;) {
        block = unpacker.unpack(window.bytes().substr(0, length), text);
        if (block.packed || length >= most_block_bytes) break;
        const std::size_t before = length;
        length = std::min(2 * length, most_block_bytes);
        if (window.bytes().size() < length) window.want(length);
        length = std::min(length, window.bytes().size());
        if (length <= before) break;
    }
    if (!block.packed || (block.plain && text.data()[block.plain - 1] != '\n')) return {};
    text.close(block.plain);
    return block;
}

class Team {
  public:
    Team(int file, BlockCodec codec, std::uint64_t from, std::uint64_t end, std::size_t readers,
         const BlockWork& work)
        : file_(file),
          codec_(codec),
          end_(end),
          work_(work),
          slots_(block_slots(readers)),
          next_place_(from),
          from_(from),
          done_to_(from) {}

    BlocksRead read(std::size_t readers) {
        std::vector<std::thread> others;
        {
            const SignalsBlocked blocked;
            try {
                for (std::size_t i = 1; i < readers; ++i) others.emplace_back([this, i] { run(i); });
            } catch (const std::system_error&) {
                // No more threads are to be had: with those that there are.
            }
        }
        run(0);
        for (std::thread& other : others) other.join();
        if (failure_) std::rethrow_exception(failure_);
        return {done_to_ - from_, plain_bytes_, stopped_};
    }

  private:
    using Held = std::unique_lock<std::mutex>;

    // A block from when it is taken until it is added.
    struct Slot {
        enum { empty, taken, scanned } state = empty;
        std::uint64_t place = 0;
        std::size_t number = 0;
        std::size_t round = 0;
        std::size_t length = 0;
        Unpacked block;
        PlainText text;
    };

    void run(std::size_t reader) {
        try {
            take_blocks(reader);
        } catch (...) {
            const std::lock_guard guard(lock_);
            if (!failure_) failure_ = std::current_exception();
            end();
        }
    }

    void take_blocks(std::size_t reader) {
        Unpacker unpacker(codec_);
        Window window(file_, end_);
        for (Held held(lock_);;) {
            if (reader == 0) {
                held.unlock();
                const bool go_on = work_.go_on();
                held.lock();
                if (!go_on) {
                    stopped_ = true;
                    end();
                }
            }
            Slot* const slot = take(window, held);
            if (!slot) return;
            held.unlock();
            slot->block = unpack(unpacker, window, slot->length, slot->text);
            if (slot->block.packed) work_.scan(reader, number_of(slot), slot->text);
            held.lock();
            if (slot->round == round_)
                slot->state = Slot::scanned;
            else
                free(*slot);
            add_those_in_turn(reader, held);
        }
    }

    // The next block; none where there is none, or reading has ended.
    Slot* take(Window& window, Held& held) {
        Slot* slot = nullptr;
        const auto ready = [&] {
            slot = find([](const Slot& one) { return one.state == Slot::empty; });
            return slot || ended_ || next_place_ >= end_;
        };
        ++waiting_;
        freed_.wait(held, ready);
        --waiting_;
        if (ended_ || next_place_ >= end_) return nullptr;
        slot->state = Slot::taken;
        slot->place = next_place_;
        slot->number = next_number_++;
        slot->round = round_;
        window.begin_at(slot->place);
        slot->length = guessed_length(codec_, window);
        next_place_ += std::max<std::size_t>(slot->length, 1);
        return slot;
    }

    // Adds the block whose turn it is, and those behind it, unless another thread is about it: that one looks
    // for more when it is done.
    void add_those_in_turn(std::size_t reader, Held& held) {
        while (!ended_ && !one_in_turn_) {
            Slot* const slot = find(
                [this](const Slot& one) { return one.state == Slot::scanned && one.number == turn_of_; });
            if (!slot) return;
            if (!slot->block.packed) return end();
            const std::uint64_t behind = slot->place + slot->block.packed;
            if (slot->block.packed != slot->length) begin_anew(*slot, behind);
            one_in_turn_ = true;
            held.unlock();
            work_.in_order(number_of(slot));
            held.lock();
            one_in_turn_ = false;
            done_to_ = behind;
            plain_bytes_ += slot->block.plain;
            ++turn_of_;
            held.unlock();
            work_.add(reader, number_of(slot));
            held.lock();
            free(*slot);
        }
    }

    // Those behind a block began at a wrong place.
    void begin_anew(const Slot& block, std::uint64_t behind) {
        ++round_;
        next_place_ = behind;
        next_number_ = block.number + 1;
        for (Slot& slot : slots_)
            if (slot.state == Slot::scanned && slot.number > block.number) free(slot);
    }

    void free(Slot& slot) {
        slot.state = Slot::empty;
        if (waiting_) freed_.notify_one();
    }

    void end() {
        ended_ = true;
        freed_.notify_all();
    }

    template <typename Wanted>
    Slot* find(const Wanted& wanted) {
        const auto found = std::find_if(slots_.begin(), slots_.end(), wanted);
        return found == slots_.end() ? nullptr : &*found;
    }
    std::size_t number_of(const Slot* slot) const { return static_cast<std::size_t>(slot - slots_.data()); }

    const int file_;
    const BlockCodec codec_;
    const std::uint64_t end_;
    const BlockWork& work_;
    std::mutex lock_;
    std::condition_variable freed_;
    std::vector<Slot> slots_;
    std::size_t waiting_ = 0;
    std::uint64_t next_place_;
    std::size_t next_number_ = 0;
    std::size_t turn_of_ = 0;
    std::size_t round_ = 0;
    const std::uint64_t from_;
    std::uint64_t done_to_;
    std::uint64_t plain_bytes_ = 0;
    bool one_in_turn_ = false;
    bool ended_ = false;
    bool stopped_ = false;
    std::exception_ptr failure_;
};

}  // namespace

BlocksRead read_blocks(int file, BlockCodec codec, std::uint64_t from, std::uint64_t end, std::size_t readers,
                       const BlockWork& work) {
    return Team(file, codec, from, end, readers, work).read(readers);
}

struct BlockByBlock::Parts {
    BlockCodec codec;
    Unpacker unpacker;
    Window window;
    std::optional<BlockFacts> facts;
    std::size_t packed = 0;
};

BlockByBlock::BlockByBlock(int file, BlockCodec codec, std::uint64_t end)
    : parts_(new Parts{codec, Unpacker(codec), Window(file, end), {}, 0}) {}

BlockByBlock::~BlockByBlock() = default;

std::size_t BlockByBlock::read(std::uint64_t from, PlainText& text) {
    Window& window = parts_->window;
    window.begin_at(from);
    const std::size_t guess = guessed_length(parts_->codec, window);
    parts_->facts = block_facts(window.bytes());
    return parts_->packed = unpack(parts_->unpacker, window, guess, text).packed;
}

std::string_view BlockByBlock::block() const noexcept {
    return parts_->window.bytes().substr(0, parts_->packed);
}

const std::optional<BlockFacts>& BlockByBlock::facts() const noexcept { return parts_->facts; }

}  // namespace dftrace
