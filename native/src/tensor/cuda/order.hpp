// What a launch of the kernels is given: the same layout for the compiler of the host and that of the device.
#pragma once

namespace dftrace::tensor::cuda {

constexpr unsigned threads = 256;      // of a block
constexpr unsigned at_once = 4;        // of these, that it adds up together
constexpr unsigned vectors_ahead = 4;  // of 16 bytes, that a thread asks for before it uses one

// What a block leaves of its part of a tensor: eleven numbers, in fp64 whatever the elements are.
struct Part {
    double mean, m2, absolute;  // of the finite elements
    double low, high, least;    // the last is the smallest magnitude above zero
    unsigned long long finite, nan, zero, over, under;
};

struct Stretch {
    const void* data;
    unsigned long long count;
    unsigned first_block, blocks;  // that work on it
    unsigned row;                  // where its record goes, in rows
};

// Where the thresholds of an 8-bit format come from.
enum class Limits : int { none, given, from_scale };

struct Order {
    Stretch alone;           // the one tensor, where there is no table
    const Stretch* table;    // on the device, and so is all that follows
    const unsigned* owners;  // the stretch of each block
    Part* parts;             // one for each block
    unsigned* done;          // one for each stretch: blocks that are done. Zero before and after
    double* rows;            // records
    const float* scale;      // for Limits::from_scale
    float under, over, factor;
    Limits limits;
    int format;  // Fp8Format
};

// Blocks for so many bytes: as many as have something to do, and fill the device.
inline unsigned blocks_for(unsigned long long bytes, unsigned most) {
    const unsigned long long of_block = 16ull * threads * vectors_ahead;
    const unsigned long long wanted = (bytes + of_block - 1) / of_block;
    return wanted < 1 ? 1 : wanted > most ? most : static_cast<unsigned>(wanted);
}

}  // namespace dftrace::tensor::cuda
