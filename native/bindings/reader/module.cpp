// The module `dftrace_ai._reader`: reading traces, without a recorder.
#include "reader/module.hpp"
#include "python.hpp"

namespace dftrace::py {

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dftrace_ai._reader",
                          "The native reader of traces.",
                          0,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__reader() {
    using namespace dftrace::py;
    Ref module(PyModule_Create(&definition));
    if (!module || add_totals_type(module.get()) < 0 || add_sums_type(module.get()) < 0 ||
        add_event_types(module.get()) < 0 || add_event_table_type(module.get()) < 0 ||
        add_span_tree_type(module.get()) < 0 || add_walking_types(module.get()) < 0 ||
        add_hopping(module.get()) < 0 || add_documents_type(module.get()) < 0 ||
        add_columns(module.get()) < 0 || add_samples_type(module.get()) < 0 || add_calls(module.get()) < 0 ||
        add_thread_time(module.get()) < 0 || add_capsules(module.get()) < 0)
        return nullptr;
    return module.release();
}
