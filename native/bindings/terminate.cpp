// How a program ends in which an exception is never caught, for modules that have the C++ library inside.
//
// The library's own way spells out the exception's type, for which it brings a reader of mangled names: a
// fiftieth of a wheel.
#include <cxxabi.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <typeinfo>

namespace {

void say(const char* text) noexcept { static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text))); }

}  // namespace

namespace __gnu_cxx {

// Declared by the library, which takes this one in its place where it is linked statically.
void __verbose_terminate_handler();

void __verbose_terminate_handler() {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    say("terminate called");
    if (type) {
        say(" after throwing an instance of '");
        say(type->name());
        say("'");
    }
    say("\n");
    std::abort();
}

}  // namespace __gnu_cxx
