// The dict that the end of a run and recovery give.
#include "outcome.hpp"

namespace dftrace::py {

PyObject* outcome_dict(const Outcome& outcome) {
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:O,s:O,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "trace_path",
                         path_text(outcome.trace_path), "spool_path", path_text(outcome.spool_path),
                         "spool_refusal", path_text(outcome.spool_refusal), "error", path_text(outcome.error),
                         "abandoned", outcome.abandoned ? Py_True : Py_False, "marked",
                         outcome.marked ? Py_True : Py_False, "events",
                         static_cast<unsigned long long>(outcome.events), "lost_lines",
                         static_cast<unsigned long long>(outcome.lost_lines), "spoilt_lines",
                         static_cast<unsigned long long>(outcome.spoilt_lines), "spool_bytes",
                         static_cast<unsigned long long>(outcome.spool_bytes), "dropped",
                         static_cast<unsigned long long>(outcome.losses.dropped), "waits",
                         static_cast<unsigned long long>(outcome.losses.waits), "unmatched_stops",
                         static_cast<unsigned long long>(outcome.losses.unmatched_stops), "args_sanitised",
                         static_cast<unsigned long long>(outcome.losses.args_sanitised));
}

}  // namespace dftrace::py
