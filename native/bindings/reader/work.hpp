// Reading while other threads of Python go on.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <system_error>

#include "dftrace/index/budget.hpp"
#include "python.hpp"

namespace dftrace::py {

// Interrupts reach the thread that Python began on, and no other looks for them.
class Interrupts {
  public:
    Interrupts() : mine_(syscall(SYS_gettid) == getpid()), state_(PyEval_SaveThread()) {}
    bool none() {
        const auto now = std::chrono::steady_clock::now();
        if (!mine_ || now - looked_ < std::chrono::milliseconds(50)) return true;
        looked_ = now;
        PyEval_RestoreThread(state_);
        const bool interrupted = PyErr_CheckSignals() < 0;
        state_ = PyEval_SaveThread();
        return !interrupted;
    }
    void end() { PyEval_RestoreThread(state_); }

  private:
    bool mine_;
    PyThreadState* state_;
    std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

// Calls what takes long while other threads go on; false with an exception set.
template <typename Call>
bool work(bool& busy, Call call) {
    if (busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread reads by this object");
        return false;
    }
    busy = true;
    PyObject* kind = nullptr;
    std::string told;
    int number = 0;
    Interrupts interrupts;
    try {
        call(interrupts);
    } catch (const TooMuch& error) {
        kind = PyExc_OverflowError;
        told = error.what();
    } catch (const std::system_error& error) {
        kind = PyExc_OSError;
        number = error.code().value();
    } catch (const std::bad_alloc&) {
        kind = PyExc_MemoryError;
    }
    interrupts.end();
    busy = false;
    if (kind == PyExc_OSError) {
        errno = number;
        PyErr_SetFromErrno(PyExc_OSError);
    } else if (kind) {
        PyErr_SetString(kind, told.c_str());
    }
    return !PyErr_Occurred();
}

}  // namespace dftrace::py
