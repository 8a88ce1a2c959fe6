// What must hold for the columns of a block as Arrow has them.
#pragma once

#include <string_view>

// Ends the program, which the fuzzer reports, unless the columns of the lines, whole ones in two blocks, are
// what the specification of Arrow's C data interface has, and tell what the general reader finds in each
// line.
void require_columns(std::string_view text);
