// What instrumentation asks before it records anything, the span of a call that it records, and what the
// thread is inside of meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "annotation/span.hpp"
#include "python.hpp"

namespace dftrace::py {

// Whether anything is recorded now.
struct Gate {
    PyObject_HEAD bool live;
    bool recording;
    PyObject* shared;  // with a `value`, for workers of loaders; or None
};

extern PyTypeObject gate_type;

class CallSpan {
  public:
    // `plain`: nothing accompanies the spans of the node.
    CallSpan(Node* node, const Gate* gate, bool plain) : node_(node), gate_(gate), plain_(plain) {}

    // False where what accompanies it has raised.
    bool open() {
        if (!gate_->recording) return true;
        if (!plain_) return enter();
        if (node_->enabled) open_span(node_, node_->name, state_);
        return true;
    }
    // Behind a call that has raised, too. False as above.
    bool close(bool raised, std::uint64_t count = 0) {
        if (state_.generation) [[likely]]
            close_span(node_, node_->name, state_, raised ? raised_error() : 0, count,
                       count ? RecordFlag::has_count : 0);
        return !entered_ || leave();
    }
    void close_unless_empty();

  private:
    bool enter();
    bool leave();

    Node* node_;
    const Gate* gate_;
    SpanState state_;
    bool plain_, entered_ = false;
};

// What a thread is inside of, or how deep.
enum class Inside { forward, backward, optimizer, waiting, hooked, computing };

// The calling thread's number, 0 in one that begins.
inline std::int32_t& count_of(Inside what) noexcept {
    return detail::this_thread.inside[static_cast<std::size_t>(what)];
}
inline void set_count(Inside what, std::int32_t count) noexcept { count_of(what) = count; }

}  // namespace dftrace::py
