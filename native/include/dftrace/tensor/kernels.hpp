// Which processor the kernels are made for.
#pragma once

namespace dftrace::tensor {

// Each has those before it.
enum class Instructions { portable, avx2, avx512 };

// What this processor has.
Instructions best_instructions() noexcept;

// What is used; the best unless told otherwise.
Instructions instructions_in_use() noexcept;

// Makes calls from now on use these instructions, so that tests can compare. Instructions that the
// processor lacks are not taken. Returns what is used.
Instructions use_instructions(Instructions wanted) noexcept;

}  // namespace dftrace::tensor
