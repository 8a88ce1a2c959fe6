// What must hold for every line of a trace.
#pragma once

#include <string_view>

// Ends the program, which the fuzzer reports, unless `text` is whole lines of one JSON object each, in
// UTF-8. That a key stands twice is let pass: the arguments of a made-up spool may say what they like.
void require_lines(std::string_view text);

[[noreturn]] void fail(const char* what, std::string_view where);
