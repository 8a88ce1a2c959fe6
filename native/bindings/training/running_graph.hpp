// Which backward pass calls the code that runs now, by torch's own word.
#pragma once

#include "python.hpp"

namespace dftrace::py {

class RunningGraph {
  public:
    // `asked`: torch's function of Python that tells the number of the pass, -1 for none; or None. Of what it
    // calls, torch shows the function of C++ as well: that is called where it is found.
    explicit RunningGraph(PyObject* asked);

    // 1 within a backward pass, 0 outside, -1 with an error set.
    int is_on(PyObject* asked) const {
        if (number_) [[likely]]
            return number_() != -1;
        const long long graph = number_of_owned(PyObject_CallNoArgs(asked));
        return graph == -1 && PyErr_Occurred() ? -1 : graph != -1;
    }

  private:
    int (*number_)() = nullptr;
};

}  // namespace dftrace::py
