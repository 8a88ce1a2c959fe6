// What a test is written with: TEST, CHECK, REQUIRE, SKIP.
//
// A suite is a file `<suite>_test.cpp`; `dftrace_tests lanes codec` runs those two. CHECK notes a
// failure and goes on, also on threads that the test started; REQUIRE ends the test.
#pragma once

#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace check {

struct Registration {
    Registration(std::string_view file, std::string_view name, void (*body)());
};

struct Stopped {};  // by REQUIRE
struct Skipped {
    std::string reason;
};

void failed(const char* file, int line, std::string_view what);
// Failures so far in this process: a forked child hands them on by its exit status.
int failures() noexcept;

template <class T>
std::string shown(const T& value) {
    std::ostringstream out;
    if constexpr (std::is_enum_v<T>)
        out << static_cast<long long>(value);
    else if constexpr (std::is_convertible_v<const T&, std::string_view>)
        out << '"' << std::string_view(value) << '"';
    else
        out << value;
    return out.str();
}

// Comparisons hold between signed and unsigned numbers as in mathematics.
template <class A, class B>
bool equal(const A& a, const B& b) {
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B> && !std::is_same_v<A, bool> &&
                  !std::is_same_v<B, bool>)
        return (a < 0) == (b < 0) && static_cast<unsigned long long>(a) == static_cast<unsigned long long>(b);
    else if constexpr (std::is_convertible_v<const A&, std::string_view>)
        return std::string_view(a) == std::string_view(b);
    else
        return a == b;
}

template <class A, class B>
bool check_equal(const char* file, int line, const char* text, const A& a, const B& b) {
    if (equal(a, b)) return true;
    failed(file, line, std::string(text) + "\n      left:  " + shown(a) + "\n      right: " + shown(b));
    return false;
}

template <class Error>
bool throws(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error&) {
        return true;
    }
    return false;
}

}  // namespace check

#define CHECK_JOIN_(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN_(a, b)
#define TEST(name)                                                                                        \
    static void CHECK_JOIN(test_body_, __LINE__)();                                                       \
    static const check::Registration CHECK_JOIN(test_entry_, __LINE__){__FILE__, name,                    \
                                                                       CHECK_JOIN(test_body_, __LINE__)}; \
    static void CHECK_JOIN(test_body_, __LINE__)()

#define CHECK(...) ((__VA_ARGS__) ? void() : check::failed(__FILE__, __LINE__, #__VA_ARGS__))
#define CHECK_EQ(a, b) (void)check::check_equal(__FILE__, __LINE__, #a " == " #b, (a), (b))
#define REQUIRE(...) \
    ((__VA_ARGS__) ? void() : (check::failed(__FILE__, __LINE__, #__VA_ARGS__), throw check::Stopped{}))
#define REQUIRE_EQ(a, b) \
    (check::check_equal(__FILE__, __LINE__, #a " == " #b, (a), (b)) ? void() : throw check::Stopped{})
#define CHECK_THROWS(type, ...) CHECK(check::throws<type>([&] { (void)(__VA_ARGS__); }))
#define SKIP(why) \
    throw check::Skipped { why }
