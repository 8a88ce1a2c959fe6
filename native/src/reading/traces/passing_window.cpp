// Which lines a window has.
#include "dftrace/reading/traces/passing_window.hpp"

namespace dftrace {

bool PassingWindow::is_outside() {
    const std::size_t row = walk_.row();
    if (row == LineWalk::no_row) return false;
    const std::int64_t start = walk_.rows().start[row];
    const std::int64_t duration = std::max<std::int64_t>(walk_.rows().duration[row], 0);
    if (start < least_ || (start <= last_ && start + duration >= first_)) return false;
    if (walk_.style() == TimeStyle::none) return false;
    if (!left_out_) left_out_.emplace();
    left_out_->start = std::min(left_out_->start, start);
    left_out_->end = std::max(left_out_->end, start + duration);
    return true;
}

bool PassingWindow::step() {
    while (walk_.step())
        if (!is_outside()) return true;
    return false;
}

}  // namespace dftrace
