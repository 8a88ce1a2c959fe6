// Spools made from a fuzzer's input: a small program of changes to the spool of a dead process.
#pragma once

#include <cstdint>
#include <string>

// A directory in memory, removed at the end of the program.
const std::string& scratch_directory();

struct MadeSpool {
    std::string path;
    std::string trace;  // content of the trace that lies in the directory already, may be empty
    std::string trace_name;
};
// Makes the spool file; the process that it tells of is gone.
MadeSpool make_spool(const std::uint8_t* data, std::size_t bytes);
