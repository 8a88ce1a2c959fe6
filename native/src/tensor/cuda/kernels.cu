// The statistics of tensors on a GPU, in one launch: each thread reads far ahead and adds up by itself, the
// block that is done last puts the parts together. Where the time goes: docs/design/gpu-statistics.md.
//
// Compiled for GPUs by native/packaging/gpu_kernels.py, into kernels.ptx beside it. A compiler for the host
// makes of the same lines functions that do what all threads of a block do, one after the other, with the
// same bits: by them the tests look at the kernels where there is no GPU.
#include "dftrace/tensor/record.hpp"
#include "tensor/cuda/order.hpp"
// Compiled for the device, too: one formula for a statistic, one for a threshold.
#include "tensor/fp8.cpp"
#include "tensor/statistics.cpp"
#ifndef __CUDACC__
#include "tensor/number_formats.hpp"
#endif

namespace dftrace::tensor::cuda {

// 16 bytes, which a thread reads at once.
struct alignas(16) Vector {
    unsigned words[4];
};

#ifdef __CUDACC__
#define NOINLINE __noinline__

float fp16_number(unsigned short bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
}
float number_of_bits(unsigned bits) { return __uint_as_float(bits); }
// Past the first cache, where nothing is read twice.
Vector read_once(const Vector* at) {
    Vector read;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(read.words[0]), "=r"(read.words[1]), "=r"(read.words[2]), "=r"(read.words[3])
        : "l"(__cvta_generic_to_global(at)));
    return read;
}
#else
#define NOINLINE
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

float fp16_number(unsigned short bits) { return Fp16::widen(bits); }
float number_of_bits(unsigned bits) { return float_of(bits); }
// A GPU reads a vector nowhere else.
Vector read_once(const Vector* at) {
    if (reinterpret_cast<unsigned long long>(at) % sizeof(Vector)) __builtin_trap();
    return *at;
}
#endif

// The formats of elements, and what is computed in.
struct OfFp32 {
    using Stored = float;
    using Number = float;
    static Number number(Stored stored) { return stored; }
    static void numbers(const Vector& vector, Number* into) {
        for (int i = 0; i < 4; ++i) into[i] = number_of_bits(vector.words[i]);
    }
};
struct OfBf16 {
    using Stored = unsigned short;
    using Number = float;
    static Number number(Stored stored) { return number_of_bits(static_cast<unsigned>(stored) << 16); }
    static void numbers(const Vector& vector, Number* into) {
        for (int i = 0; i < 4; ++i) {
            into[2 * i] = number_of_bits(vector.words[i] << 16);
            into[2 * i + 1] = number_of_bits(vector.words[i] & 0xFFFF'0000u);
        }
    }
};
struct OfFp16 {
    using Stored = unsigned short;
    using Number = float;
    static Number number(Stored stored) { return fp16_number(stored); }
    static void numbers(const Vector& vector, Number* into) {
        for (int i = 0; i < 4; ++i) {
            into[2 * i] = fp16_number(static_cast<Stored>(vector.words[i]));
            into[2 * i + 1] = fp16_number(static_cast<Stored>(vector.words[i] >> 16));
        }
    }
};
struct OfFp64 {
    using Stored = double;
    using Number = double;
    static Number number(Stored stored) { return stored; }
    static void numbers(const Vector& vector, Number* into) {
        union {
            unsigned words[4];
            double numbers[2];
        } both;
        for (int i = 0; i < 4; ++i) both.words[i] = vector.words[i];
        into[0] = both.numbers[0];
        into[1] = both.numbers[1];
    }
};

// Beyond the first, squares of fp64 numbers may not fit; times the second, they do.
constexpr double wide_large = 0x1p480, wide_factor = 0x1p-600;
// Sums of distances of fp64 numbers fit when they are counted in this.
constexpr double unit = 0x1p-64;

// What a thread has of its part: sums of distances of the finite numbers from one that they lie around, and
// what needs no such number. How Chan, Golub and LeVeque merge moments takes a division each time; sums
// around a common number are added, and divided in the end. Nothing is lost by that: in fp64 there is room
// for the squares of distances from any of the numbers.
template <class Number, class Count>
struct Share {
    static constexpr Number none = static_cast<Number>(infinity);

    double around = 0, sum = 0, squares = 0, absolute = 0;
    Number low = none, high = -none, least = none;
    Count finite = 0, nan = 0, zero = 0, over = 0, under = 0;

    // Makes them sums around another number, that of distances in units.
    void move(double center) {
        const double n = static_cast<double>(finite), away = around - center;
        squares += away * (2 * sum + n * away);
        sum = sum * unit + n * (around * unit - center * unit);
        around = center;
        if (finite == 0) sum = squares = 0;
    }

    // Makes its mean what they lie around.
    void settle() {
        if (finite == 0) return;
        const double n = static_cast<double>(finite), away = sum / n / unit;
        const double least_squares = squares - n * away * away;
        around += away;
        // Infinite they stay.
        if (squares < infinity) squares = least_squares > 0 ? least_squares : 0;
        sum = 0;
    }

    // Adds another one around the same number.
    void add(const Share& other) {
        sum += other.sum;
        squares += other.squares;
        absolute += other.absolute;
        low = low < other.low ? low : other.low;
        high = high > other.high ? high : other.high;
        least = least < other.least ? least : other.least;
        finite += other.finite;
        nan += other.nan;
        zero += other.zero;
        over += other.over;
        under += other.under;
    }
};

constexpr unsigned warp_threads = 32, warps = threads / warp_threads;

#ifdef __CUDACC__

// What the threads of a block have, of which this is one.
template <class Of>
struct Block {
    Of share;

    template <class Work>
    void each(const Work& work) {
        work(threadIdx.x, share);
    }

    template <class Work>
    void first(const Work& work) {
        if (threadIdx.x == 0) work(share);
    }

    // Puts together what the threads have, always in one order, into that of the first.
    void fold() {
        __shared__ Of of_warps[warps];
        const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
        fold_warp(warp_threads / 2);
        if (lane == 0) of_warps[warp] = share;
        __syncthreads();
        if (warp == 0) {
            share = lane < warps ? of_warps[lane] : Of{};
            share.settle();
            fold_warp(warps / 2);
            share.settle();
        }
        __syncthreads();
    }

  private:
    void fold_warp(unsigned apart) {
        // Around what the numbers of the first lane lie around that has any.
        const unsigned known = __ballot_sync(~0u, share.finite > 0);
        share.move(__shfl_sync(~0u, share.around, known ? __ffs(known) - 1 : 0));
#pragma unroll 1
        for (; apart; apart /= 2) {
            union Words {
                Of of;
                unsigned words[sizeof(Of) / 4];
                Words() {}
            } here, there;
            here.of = share;
#pragma unroll
            for (unsigned i = 0; i < sizeof(Of) / 4; ++i)
                there.words[i] = __shfl_down_sync(~0u, here.words[i], apart);
            share.add(there.of);
        }
    }
};

// Whether this block is the last of so many to come here; all of its threads are told.
bool comes_last(unsigned* done, unsigned blocks) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(done, 1) == blocks - 1;
        if (last) *done = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// What another block has written, past what this processor may have kept of it.
Part part_of(const Part* at) {
    union Words {
        Part part;
        unsigned long long words[sizeof(Part) / 8];
        Words() {}
    } read;
#pragma unroll
    for (unsigned i = 0; i < sizeof(Part) / 8; ++i)
        read.words[i] = __ldcg(reinterpret_cast<const unsigned long long*>(at) + i);
    return read.part;
}

#else

template <class Of>
struct Block {
    Of shares[threads];

    template <class Work>
    void each(const Work& work) {
        for (unsigned thread = 0; thread < threads; ++thread) work(thread, shares[thread]);
    }

    template <class Work>
    void first(const Work& work) {
        work(shares[0]);
    }

    void fold() {
        for (unsigned warp = 0; warp < warps; ++warp) {
            fold_warp(shares + warp * warp_threads, warp_threads);
            shares[warp] = shares[warp * warp_threads];
        }
        for (unsigned warp = 0; warp < warps; ++warp) shares[warp].settle();
        fold_warp(shares, warps);
        shares[0].settle();
    }

  private:
    static void fold_warp(Of* of_lanes, unsigned lanes) {
        unsigned first = 0;
        while (first < lanes && of_lanes[first].finite == 0) ++first;
        const double center = of_lanes[first < lanes ? first : 0].around;
        for (unsigned lane = 0; lane < lanes; ++lane) of_lanes[lane].move(center);
        for (unsigned apart = lanes / 2; apart; apart /= 2)
            for (unsigned lane = 0; lane < apart; ++lane) of_lanes[lane].add(of_lanes[lane + apart]);
    }
};

bool comes_last(unsigned* done, unsigned blocks) {
    if (++*done < blocks) return false;
    *done = 0;
    return true;
}

Part part_of(const Part* at) { return *at; }

#endif

// Distances of numbers from one of them.
struct Distances {
    double shift = 0, sum = 0, squares = 0;
    unsigned count = 0;

    void take(double number) {
        const double distance = number - shift;
        sum += distance;
        squares = std::fma(distance, distance, squares);
        ++count;
    }
};

// What one thread adds up. Numbers of up to 32 bits that come together are summed in fp32, around the first
// one of the thread: the thread's own, since around one outlier of the tensor's all sums would lose their
// digits. What does not fit there is taken one by one, in fp64.
template <class Format>
struct Sums {
    using Number = typename Format::Number;
    static constexpr bool wide = sizeof(Number) == 8;
    static constexpr int of_vector = 16 / sizeof(typename Format::Stored);
    static constexpr Number none = static_cast<Number>(infinity);

    Fp8Thresholds limits;
    Number shift = 0;
    // Up to this sum of their magnitudes, numbers whose squared distances are zero are all what they lie
    // around.
    Number known_constant = 0;
    Distances usual, huge;
    double absolute = 0;
    Number low = none, high = -none, least = none;
    unsigned nan = 0, zero = 0, over = 0, under = 0;

    explicit Sums(Fp8Thresholds thresholds) : limits(thresholds) {}

    // Takes the first finite number of a vector for what all others lie around.
    void begin(const Vector& vector) {
        Number numbers[of_vector];
        Format::numbers(vector, numbers);
        constexpr Number bound = wide ? static_cast<Number>(wide_large) : none;
#pragma unroll
        for (int i = of_vector; i-- > 0;)
            if (std::fabs(numbers[i]) < bound) shift = numbers[i];
        usual.shift = shift;
        // A distance from so large a number is zero, or its square is not.
        constexpr Number surely = wide ? 0x1p-480 : 0x1p-50, most = wide ? 0x1p1000 : 0x1p127;
        known_constant = std::fabs(shift) >= surely ? most : shift == 0 ? 0 : -1;
    }

    void count(Number size) {
        const auto narrow = static_cast<float>(size);
        zero += size == 0;
        over += narrow > limits.over;
        under += narrow <= limits.under && size > 0;
        least = std::fmin(least, size > 0 ? size : none);
    }

    void take(Number number) {
        const Number size = std::fabs(number);
        if (wide && size > wide_large && size < none) {
            if (!huge.count) huge.shift = number * wide_factor;
            huge.take(number * wide_factor);
            absolute += size;
        } else if (size < none) {
            usual.take(number);
            absolute += size;
        } else {
            nan += number != number;
        }
        low = std::fmin(low, number);
        high = std::fmax(high, number);
        count(size);
    }

    // False, with nothing done, where they have to be taken one by one: nearly never. Without a branch before
    // that is known, what is done for several vectors can be done at once.
    template <unsigned vectors>
    bool take_together(const Vector (&read)[vectors]) {
        constexpr Number tiny = wide ? 1e-290 : 1e-30, large = wide ? wide_large * wide_large : 1e38;
        double sum = 0, squares = 0, sizes = 0;
        Number smallest = none, largest = -none, nearest = none, all = 0;
        bool fit = true;
#pragma unroll
        for (unsigned k = 0; k < vectors; ++k) {
            Number numbers[of_vector];
            Format::numbers(read[k], numbers);
            Number of_distances = 0, of_squares = 0, of_sizes = 0;
            for (const Number number : numbers) {
                const Number distance = number - shift;
                of_distances += distance;
                of_squares = std::fma(distance, distance, of_squares);
                of_sizes += std::fabs(number);
                smallest = std::fmin(smallest, number);
                largest = std::fmax(largest, number);
                nearest = std::fmin(nearest, std::fabs(number));
            }
            fit &= (of_squares > tiny) | ((of_squares == 0) & (of_sizes <= known_constant));
            sum += of_distances;
            squares += of_squares;
            sizes += of_sizes;
            all += of_squares;
        }
        // What is no number, or infinite, is in the squares.
        if (!fit || !(all < large)) return false;
        usual.sum += sum;
        usual.squares += squares;
        usual.count += vectors * of_vector;
        absolute += sizes;
        low = std::fmin(low, smallest);
        high = std::fmax(high, largest);
        if (nearest > limits.under && std::fmax(-smallest, largest) <= limits.over)
            least = std::fmin(least, nearest);
        else
            count_all(read);
        return true;
    }

    template <unsigned vectors>
    void count_all(const Vector (&read)[vectors]) {
#pragma unroll
        for (unsigned k = 0; k < vectors; ++k) {
            Number numbers[of_vector];
            Format::numbers(read[k], numbers);
            for (const Number number : numbers) count(std::fabs(number));
        }
    }

    template <class Count>
    void put_into(Share<Number, Count>& share) const {
        share.around = shift;
        share.sum = usual.sum;
        share.squares = usual.squares;
        share.finite = usual.count;
        if constexpr (wide)
            if (huge.count) add_huge(share);
        share.absolute = absolute;
        share.low = low;
        share.high = high;
        share.least = least;
        share.nan = nan;
        share.zero = zero;
        share.over = over;
        share.under = under;
    }

    // Chan, Golub, LeVeque 1979. The distance may be infinite, and so the squares.
    template <class Count>
    void add_huge(Share<Number, Count>& share) const {
        Share<Number, Count> other;
        other.around = huge.shift;
        other.sum = huge.sum * unit;
        other.squares = huge.squares;
        other.finite = huge.count;
        other.settle();
        share.sum *= unit;
        share.settle();
        const double n = share.finite, more = huge.count, part = more / (n + more);
        const double mean = other.around / wide_factor, distance = mean - share.around;
        const double m2 = other.squares / wide_factor / wide_factor;
        share.squares += m2 + (n > 0 ? distance * distance * (n * part) : 0);
        share.around = share.around * (n / (n + more)) + mean * part;
        share.finite += huge.count;
    }
};

NOINLINE Fp8Thresholds thresholds_of(const Order& order) {
    if (order.limits == Limits::from_scale)
        return fp8_thresholds(*order.scale, static_cast<Fp8Format>(order.format));
    if (order.limits == Limits::given) return {order.under, order.over};
    return {0.0f, static_cast<float>(infinity)};
}

// The sums of one thread of so many.
template <class Format>
void add_up(const Stretch& stretch, Fp8Thresholds limits, unsigned long long thread, unsigned long long of,
            Share<typename Format::Number, unsigned>& share) {
    using Stored = typename Format::Stored;
    constexpr unsigned of_vector = 16 / sizeof(Stored);
    const auto* x = static_cast<const Stored*>(stretch.data);
    const auto address = reinterpret_cast<unsigned long long>(x);
    unsigned long long head = (16 - address % 16) % 16 / sizeof(Stored);
    if (head > stretch.count) head = stretch.count;
    const unsigned long long vectors = (stretch.count - head) / of_vector;
    const unsigned long long tail = head + vectors * of_vector;
    const auto* const vector = reinterpret_cast<const Vector*>(x + head);
    Sums<Format> sums(limits);
    if (vectors) sums.begin(vector[thread < vectors ? thread : 0]);
    const auto one_by_one = [&](unsigned long long first, unsigned long long end, unsigned long long step) {
#pragma unroll 1
        for (unsigned long long i = first; i < end; i += step) sums.take(Format::number(x[i]));
    };
    const auto vector_again = [&](unsigned long long index) {
        const unsigned long long first = head + index * of_vector;
        one_by_one(first, first + of_vector, 1);
    };
    unsigned long long i = thread;
#pragma unroll 1
    for (; i + (vectors_ahead - 1) * of < vectors; i += vectors_ahead * of) {
        Vector read[vectors_ahead / at_once][at_once];
#pragma unroll
        for (unsigned k = 0; k < vectors_ahead; ++k)
            read[k / at_once][k % at_once] = read_once(vector + i + k * of);
        unsigned again = 0;
#pragma unroll
        for (unsigned k = 0; k < vectors_ahead; k += at_once)
            if (!sums.take_together(read[k / at_once])) again |= ((1u << at_once) - 1) << k;
#pragma unroll 1
        for (unsigned k = 0; again >> k; ++k)
            if (again >> k & 1) vector_again(i + k * of);
    }
#pragma unroll 1
    for (; i < vectors; i += of) {
        const Vector read[1] = {read_once(vector + i)};
        if (!sums.take_together(read)) vector_again(i);
    }
    one_by_one(thread, head, of);
    one_by_one(tail + thread, stretch.count, of);
    sums.put_into(share);
}

// Writes the record of a whole tensor.
NOINLINE void write_row(const Part& whole, const Stretch& stretch, const Order& order) {
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    Record record{};
    record.n_finite = static_cast<double>(whole.finite);
    record.mean = whole.mean;
    record.m2 = whole.m2;
    record.absolute_sum = whole.absolute;
    record.min = whole.low;
    record.max = whole.high;
    record.amin_nonzero = whole.least;
    if (whole.nan < stretch.count) record.amax = std::fmax(std::fabs(whole.low), std::fabs(whole.high));
    record.n_nan = static_cast<double>(whole.nan);
    record.n_inf = static_cast<double>(stretch.count - whole.finite - whole.nan);
    record.n_zero = static_cast<double>(whole.zero);
    record.n_over = static_cast<double>(whole.over);
    record.n_under = static_cast<double>(whole.under);
    record.n_total = static_cast<double>(stretch.count);
    record.scale_min = record.scale_max = order.limits == Limits::none         ? unknown
                                          : order.limits == Limits::from_scale ? *order.scale
                                                                               : order.factor;
    reinterpret_cast<Record*>(order.rows)[stretch.row] = record;
}

// A part of a tensor as other blocks read it, and what they make of it again.
template <class Of>
Part part_of_share(const Of& share) {
    return {share.around, share.squares, share.absolute, share.low,  share.high, share.least,
            share.finite, share.nan,     share.zero,     share.over, share.under};
}

using Whole = Share<double, unsigned long long>;

void add_part(Whole& share, const Part& part) {
    if (!share.finite) share.around = part.mean;
    const double n = static_cast<double>(part.finite), away = part.mean - share.around;
    Whole other;
    other.sum = n * (part.mean * unit - share.around * unit);
    other.squares = n > 0 ? part.m2 + n * away * away : 0;
    if (!(n > 0)) other.sum = 0;
    other.absolute = part.absolute;
    other.low = part.low;
    other.high = part.high;
    other.least = part.least;
    other.finite = part.finite;
    other.nan = part.nan;
    other.zero = part.zero;
    other.over = part.over;
    other.under = part.under;
    share.add(other);
}

// The block that is done last puts together what all have.
NOINLINE void finish(const Stretch& stretch, const Order& order) {
    Block<Whole> block;
    block.each([&](unsigned thread, Whole& share) {
        share = Whole{};
#pragma unroll 1
        for (unsigned i = thread; i < stretch.blocks; i += threads)
            add_part(share, part_of(order.parts + stretch.first_block + i));
        share.settle();
    });
    block.fold();
    block.first([&](const Whole& whole) { write_row(part_of_share(whole), stretch, order); });
}

// What the threads of one block do.
template <class Format>
void statistics(const Order& order, unsigned block_index) {
    using Own = Share<typename Format::Number, unsigned>;
    const unsigned owner = order.table ? order.owners[block_index] : 0;
    const Stretch stretch = order.table ? order.table[owner] : order.alone;
    const Fp8Thresholds limits = thresholds_of(order);
    Block<Own> block;
    block.each([&](unsigned thread, Own& share) {
        const unsigned long long index = block_index - stretch.first_block;
        share = Own{};
        add_up<Format>(stretch, limits, index * threads + thread,
                       static_cast<unsigned long long>(stretch.blocks) * threads, share);
    });
    block.fold();
    if (stretch.blocks == 1) {
        block.first([&](const Own& own) { write_row(part_of_share(own), stretch, order); });
        return;
    }
    block.first([&](const Own& own) { order.parts[block_index] = part_of_share(own); });
    if (comes_last(order.done + owner, stretch.blocks)) finish(stretch, order);
}

// The statistics of a record that devices have values of, in the order of `Statistic`.
constexpr int values = static_cast<int>(Statistic::underflows);

void write_values(const Record& record, float* out, int value) {
    out[value] = record.n_total == 0 ? std::numeric_limits<float>::quiet_NaN()
                                     : final_value(record, static_cast<Statistic>(value));
}

}  // namespace dftrace::tensor::cuda

#ifdef __CUDACC__

#define KERNEL(name, Format)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 3)                                     \
        name(const __grid_constant__ dftrace::tensor::cuda::Order order) {                   \
        dftrace::tensor::cuda::statistics<dftrace::tensor::cuda::Format>(order, blockIdx.x); \
    }
KERNEL(fp32, OfFp32)
KERNEL(bf16, OfBf16)
KERNEL(fp16, OfFp16)
KERNEL(fp64, OfFp64)

extern "C" __global__ void values(const dftrace::tensor::Record* record, float* out) {
    if (threadIdx.x < dftrace::tensor::cuda::values)
        dftrace::tensor::cuda::write_values(*record, out, static_cast<int>(threadIdx.x));
}

#endif
