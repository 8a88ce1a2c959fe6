// Blocks as the recorder writes them, for who includes what reads them.
#pragma once

#include <string>
#include <string_view>

#include "dftrace/index/block_facts.hpp"

void append_block(std::string& file, bool gzip, std::string_view lines, const dftrace::BlockReach& reach,
                  dftrace::BlockHolds holds);
