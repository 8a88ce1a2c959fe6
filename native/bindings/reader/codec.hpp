// Which compression a call names.
#pragma once

#include <string_view>

#include "dftrace/reading/traces/members.hpp"
#include "python.hpp"

namespace dftrace::py {

// For "O&" of PyArg_ParseTuple, into a BlockCodec.
inline int take_codec(PyObject* given, void* into) {
    const char* const text = PyUnicode_Check(given) ? PyUnicode_AsUTF8(given) : nullptr;
    const std::string_view name = text ? text : "";
    if (name != "gzip" && name != "zstd") {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the codec is gzip or zstd");
        return 0;
    }
    *static_cast<BlockCodec*>(into) = name == "gzip" ? BlockCodec::gzip : BlockCodec::zstd;
    return 1;
}

}  // namespace dftrace::py
