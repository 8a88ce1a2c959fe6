// Rounding to nearest and subnormals kept, whatever the thread was set to.
#pragma once

#if defined(__x86_64__) && !defined(__CUDACC__)
#include <xmmintrin.h>
#endif

namespace dftrace::tensor {

#if defined(__x86_64__) && !defined(__CUDACC__)
class DefaultArithmetic {
  public:
    DefaultArithmetic() : before_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    // Flags that were raised here stay out of what the thread sees.
    ~DefaultArithmetic() { _mm_setcsr(before_); }
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

  private:
    unsigned before_;
};
#else
class DefaultArithmetic {
  public:
    DefaultArithmetic() {}
    ~DefaultArithmetic() {}
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;
};
#endif

}  // namespace dftrace::tensor
