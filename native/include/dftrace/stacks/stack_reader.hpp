// The Python stacks of the threads of this process, read while they run: no lock is taken, nobody is stopped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "dftrace/stacks/code_names.hpp"
#include "dftrace/stacks/interpreter_layout.h"
#include "dftrace/stacks/own_memory.hpp"
#include "dftrace/stacks/stack_table.hpp"

namespace dftrace {

struct StackSample {
    static constexpr std::int64_t not_known = -1;

    std::uint64_t at_ns;  // of the clock that is handed in
    pid_t thread;
    std::uint32_t stack;  // the node of its innermost frame
    bool cut;             // frames that did not stand still are missing below it
    std::int64_t cpu_ns;  // that the thread has spent since its last sample
};

struct StackCounts {
    std::uint64_t rounds = 0;
    std::uint64_t samples = 0;
    std::uint64_t cut = 0;
    std::uint64_t at_rest = 0;       // samples of threads that had not run since their last one
    std::uint64_t unread = 0;        // threads whose stack did not stand still for three readings
    std::uint64_t without_root = 0;  // readings that did not come to the thread's first frame
    std::uint64_t too_deep = 0;      // readings of stacks of more frames than are read
    std::uint64_t outlived = 0;      // frames whose code was gone
};

class StackReader {
  public:
    using Clock = std::uint64_t (*)();
    using Wanted = std::function<bool(pid_t)>;

    StackReader(const InterpreterLayout& layout, MemoryWay way, Clock clock);

    // Adds a sample of each thread of the interpreter that is wanted, as far as it can be read.
    void sample(const Wanted& wanted, std::vector<StackSample>& into);

    // Threads that were wanted in the last round, have a stack, and of which none could be read.
    const std::vector<pid_t>& unread() const noexcept { return unread_; }

    const std::vector<CodeName>& names() const noexcept { return names_.names(); }
    const std::vector<StackNode>& nodes() const noexcept { return table_.nodes(); }
    const StackCounts& counts() const noexcept { return counts_; }
    // Whether so many names or nodes are held that the next samples should have tables of their own.
    bool is_full() const noexcept;
    // Lets go of names and nodes: their numbers begin again.
    void clear() noexcept;

  private:
    struct Frame {
        std::uint64_t at;
        std::uint64_t code;
        std::uint64_t caller;
        std::uint64_t instruction;
    };
    struct Chunk {  // of frames, as CPython allocates them: previous chunk, size, top, then frames
        std::uint64_t at;
        std::size_t size;
        std::vector<std::byte> bytes;
    };
    // What was seen of a thread the last time.
    struct Seen {
        std::uint64_t round = 0;
        std::uint64_t state = 0;
        std::int64_t cpu_ns = 0;
        std::uint64_t innermost = 0;
        std::uint64_t instruction = 0;
        std::uint32_t stack = 0;
        bool whole = false;
        std::uint64_t too_deep = 0;  // the state whose stack was
        int rounds_left = 0;         // until it is tried again
        int rounds_apart = 0;
    };
    enum class Reading { done, torn, too_deep, none };

    void sample_all(const Wanted& wanted, std::vector<StackSample>& into);
    Reading read_thread(OwnMemory& memory, std::uint64_t state, pid_t thread, Seen& seen, bool last_try,
                        std::vector<StackSample>& into);
    bool read_chunks(OwnMemory& memory, std::uint64_t frame, std::uint64_t& innermost);
    Chunk& new_chunk(std::uint64_t at, std::size_t size);
    const std::byte* in_chunks(std::uint64_t at, std::size_t size) const noexcept;
    bool walk(OwnMemory& memory, std::uint64_t innermost);
    // How many of the frames, from the outermost in, are as they were read before.
    std::size_t still_there(OwnMemory& memory, std::uint64_t state, std::uint64_t frame,
                            std::uint64_t innermost, bool& all);
    // The node of the outer `count` frames, as far as they have names.
    std::size_t name_frames(OwnMemory& memory, std::size_t count, std::uint32_t& node);

    InterpreterLayout layout_;
    MemoryWay way_;
    Clock clock_;
    CodeNames names_;
    StackTable table_;
    StackCounts counts_;
    std::unordered_map<pid_t, Seen> seen_;
    // Kept from round to round, so that nothing is allocated in most.
    std::vector<std::byte> state_;
    std::vector<Chunk> chunks_;
    std::size_t chunk_count_ = 0;
    std::vector<Frame> frames_;
    std::vector<pid_t> unread_;
    std::vector<std::byte> again_;
    std::vector<MemoryPart> parts_;
};

}  // namespace dftrace
