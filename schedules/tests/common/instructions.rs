//! Small kernels that each test one PTX instruction of generated CUDA, through the generator's own
//! functions. Every number in a result encodes its origin, so that a wrong layout can be read off.

use std::fmt::Write;

use autotune_codegen::gpu::device_functions;
use autotune_ir::DType;

/// A kernel `try_it(const unsigned *given, unsigned *found)` of one block, and its expected output.
pub struct Instruction {
    pub name: String,
    pub source: String,
    /// The only compute capability (times ten) that has the instruction; `None` for 8.0 and later.
    pub only: Option<u32>,
    pub threads: usize,
    pub shared_bytes: usize,
    pub given: Vec<u32>,
    /// Tensor map, the kernel's third parameter: rows and columns of the 16-bit input matrix, and
    /// of a box.
    pub map: Option<[[usize; 2]; 2]>,
    pub expected: Vec<u32>,
    /// Describes the position of a word in the result.
    place: fn(usize, usize) -> String,
    /// Describes the origin that a word encodes.
    says: fn(u32) -> String,
    /// Number of words per thread, or another unit of positions.
    unit: usize,
}

impl Instruction {
    /// Compares the output with the expected one. Fails with a map of the wrong words.
    pub fn check(&self, found: &[u32]) -> Result<(), String> {
        assert_eq!(found.len(), self.expected.len());
        let wrong = (0..found.len()).filter(|&at| found[at] != self.expected[at]);
        let count = wrong.clone().count();
        if count == 0 {
            return Ok(());
        }
        let mut text = format!("{}: {count} of {} words are wrong\n", self.name, found.len());
        for at in wrong.take(MOST_LINES) {
            let [expected, found] = [self.expected[at], found[at]].map(self.says);
            let _ = writeln!(text, "  {}: {found}, not {expected}", (self.place)(at, self.unit));
        }
        Err(text)
    }
}

/// Maximum number of lines in a map: a warp's registers.
const MOST_LINES: usize = 256;

/// Returns the kernels of all instructions.
pub fn all() -> Vec<Instruction> {
    let mut all = vec![load_matrices("load_matrices", false), load_matrices("load_matrices_transposed", true)];
    all.extend([DType::F16, DType::Bf16, DType::Tf32].map(warp_product));
    all.extend([DType::F16, DType::Bf16, DType::Tf32].map(conversion));
    all.extend([4, 8, 16].map(copy_async));
    for (dtype, shapes) in [(DType::F16, [[16, 2], [64, 4], [256, 4]]), (DType::Bf16, [[16, 2], [240, 2], [256, 4]])] {
        all.extend(shapes.map(|shape| group_product(dtype, shape)));
    }
    all.push(copy_box());
    all
}

fn kernel(dtype: DType, groups: &[[usize; 2]], threads: usize, parameters: &str, body: &str) -> String {
    format!(
        "{}extern \"C\" __global__ void __launch_bounds__({threads}) try_it(const unsigned *given, unsigned *found{parameters}) {{\n\
         extern __shared__ __align__(1024) unsigned char shared[];\nconst int thread = threadIdx.x;\n{body}\n}}\n",
        device_functions(dtype, groups)
    )
}

fn of_thread(at: usize, words: usize) -> String {
    format!("thread {}, register {}", at / words % 128, at % words)
}

fn pair(low: usize, high: usize) -> u32 {
    (low | high << 16) as u32
}

/// Four matrices of 8 rows of 8; element `c` of row `r` of matrix `m` is `64*m + 8*r + c + 1`.
fn load_matrices(name: &str, transposed: bool) -> Instruction {
    let body = format!(
        "for (int i = 0; i < 4; ++i) ((unsigned *)shared)[4 * thread + i] = given[4 * thread + i];\n__syncthreads();\n\
         unsigned to[4];\n{name}(to, in_shared(shared + 16 * thread));\n\
         for (int i = 0; i < 4; ++i) found[4 * thread + i] = to[i];"
    );

    let held = |at: usize| {
        let (lane, matrix) = (at / 4, at % 4);
        let element = |along: usize| {
            let [row, column] = if transposed { [along, lane / 4] } else { [lane / 4, along] };
            64 * matrix + 8 * row + column + 1
        };
        pair(element(lane % 4 * 2), element(lane % 4 * 2 + 1))
    };

    Instruction {
        name: name.into(),
        source: kernel(DType::F16, &[], 32, "", &body),
        only: None,
        threads: 32,
        shared_bytes: 512,
        given: (0..128).map(|word| pair(2 * word + 1, 2 * word + 2)).collect(),
        map: None,
        expected: (0..128).map(held).collect(),
        place: of_thread,
        says: |word| {
            let element = |half: u32| match half.checked_sub(1) {
                Some(e) => format!("matrix {} row {} column {}", e / 64, e / 8 % 8, e % 8),
                None => "nothing".into(),
            };
            format!("{} and {}", element(word & 0xffff), element(word >> 16))
        },
        unit: 4,
    }
}

/// Rows of `A` have their number at one step and 1 at the next. Columns of `B` have [`ROW`] and
/// their number at these steps.
fn a(row: usize, k: usize, step: usize, steps: usize) -> f32 {
    if k == step { (row + 1) as f32 } else { f32::from(k == (step + 1) % steps) }
}

fn b(column: usize, k: usize, step: usize, steps: usize) -> f32 {
    if k == step { ROW } else { if k == (step + 1) % steps { (column + 1) as f32 } else { 0.0 } }
}

/// Factor of the row: the product of a row and a column is `ROW * (row + 1) + column + 1`, exact in
/// any precision.
const ROW: f32 = 512.0;

fn sum(row: usize, column: usize) -> u32 {
    (ROW * (row + 1) as f32 + (column + 1) as f32).to_bits()
}

fn says_sum(word: u32) -> String {
    let (value, row) = (f32::from_bits(word), ROW as usize);
    match value as usize {
        sum if sum > row && sum as f32 == value => {
            format!("row {} column {}", sum / row - 1, (sum % row).wrapping_sub(1))
        }
        _ => format!("{value}"),
    }
}

/// `mma` for each step of one instruction. Fragments are those of the PTX ISA, "Matrix Fragments
/// for mma.m16n8k16" and "for mma.m16n8k8".
fn warp_product(dtype: DType) -> Instruction {
    let per_word = 4 / dtype.bytes();
    let steps = 8 * per_word;
    let word = |values: Vec<f32>| dtype.words(&values)[0];

    let mut given = Vec::new();
    for step in 0..steps {
        for lane in 0..32 {
            let k = |half: usize, c: usize| per_word * (lane % 4 + 4 * half) + c;
            let values = |of: &dyn Fn(usize) -> f32| word((0..per_word).map(of).collect());
            given.extend((0..4).map(|i| values(&|c| a(lane / 4 + 8 * (i % 2), k(i / 2, c), step, steps))));
            given.extend((0..2).map(|i| values(&|c| b(lane / 4, k(i, c), step, steps))));
        }
    }

    let body = format!(
        "for (int step = 0; step < {steps}; ++step) {{\n  const unsigned *own = given + 6 * (32 * step + thread);\n  \
         unsigned a[4], b[2];\n  float sums[4] = {{0, 0, 0, 0}};\n  \
         for (int i = 0; i < 4; ++i) a[i] = own[i];\n  for (int i = 0; i < 2; ++i) b[i] = own[4 + i];\n  \
         mma_{}(sums, a, b);\n  \
         for (int i = 0; i < 4; ++i) found[4 * (32 * step + thread) + i] = __float_as_uint(sums[i]);\n}}",
        dtype.word()
    );

    let held = |at: usize| sum(at / 4 % 32 / 4 + at % 4 / 2 * 8, at / 4 % 4 * 2 + at % 2);
    Instruction {
        name: format!("mma m16n8k{steps} {}", dtype.word()),
        source: kernel(dtype, &[], 32, "", &body),
        only: None,
        threads: 32,
        shared_bytes: 0,
        given,
        map: None,
        expected: (0..128 * steps).map(held).collect(),
        place: |at, _| format!("step {}, lane {}, sum {}", at / 128, at / 4 % 32, at % 4),
        says: says_sum,
        unit: 4,
    }
}

/// Rounding conversions, including ties, but in tf32: compute capabilities round those differently.
fn conversion(dtype: DType) -> Instruction {
    let is_tie = |bits: u32| dtype == DType::Tf32 && bits & 0x1fff == 0x1000;
    let bits = (0..512u32).map(|i| 0x3f80_0000 + i * 0x0800 + i % 3);
    let values: Vec<f32> = bits.map(|bits| f32::from_bits(bits + u32::from(is_tie(bits)))).collect();
    let signed: Vec<f32> = values.iter().enumerate().map(|(i, v)| if i % 2 == 0 { *v } else { -v }).collect();
    let word = dtype.word();

    let (rounded, expected): (String, Vec<u32>) = match dtype {
        DType::Tf32 => {
            let nearest = |value: &f32| (value.to_bits() + 0x1000) & !0x1fff;
            ("to_tf32(given[i])".into(), signed.iter().map(nearest).collect())
        }
        _ => {
            let rounded = dtype.values(&dtype.words(&signed), signed.len());
            let text = format!("__float_as_uint(from_{word}(to_{word}(__uint_as_float(given[i]))))");
            (text, rounded.iter().map(|value| value.to_bits()).collect())
        }
    };

    Instruction {
        name: format!("rounding to {word}"),
        source: kernel(dtype, &[], 32, "", &format!("for (int i = thread; i < 512; i += 32) found[i] = {rounded};")),
        only: None,
        threads: 32,
        shared_bytes: 0,
        given: signed.iter().map(|value| value.to_bits()).collect(),
        map: None,
        expected,
        place: |at, _| format!("value {at}"),
        says: |word| format!("{:e}", f32::from_bits(word)),
        unit: 1,
    }
}

/// Two groups of asynchronous copies to memory that is not zero; the second copies zeros for every
/// third thread.
fn copy_async(bytes: usize) -> Instruction {
    let words = bytes / 4;
    let body = format!(
        "unsigned *const to = (unsigned *)shared + {words} * thread;\n\
         for (int i = 0; i < {words}; ++i) to[i] = to[i + {slot}] = ~0u;\n__syncthreads();\n\
         copy_async<{bytes}>(to, given + {words} * thread, true);\nend_group();\n\
         copy_async<{bytes}>(to + {slot}, given + {slot} + {words} * thread, thread % 3 != 0);\nend_group();\n\
         await_copies<1>();\nfor (int i = 0; i < {words}; ++i) found[{words} * thread + i] = to[i];\n\
         await_copies<0>();\nfor (int i = 0; i < {words}; ++i) found[{slot} + {words} * thread + i] = to[{slot} + i];",
        slot = 32 * words,
    );

    let given: Vec<u32> = (1..=64 * words as u32).collect();
    let there = |at: usize| at < 32 * words || !(at / words % 32).is_multiple_of(3);

    Instruction {
        name: format!("cp.async of {bytes} bytes"),
        source: kernel(DType::Tf32, &[], 32, "", &body),
        only: None,
        threads: 32,
        shared_bytes: 64 * bytes,
        expected: given.iter().enumerate().map(|(at, word)| if there(at) { *word } else { 0 }).collect(),
        given,
        map: None,
        place: |at, words| format!("group {}, thread {}, word {}", at / words / 32, at / words % 32, at % words),
        says: |word| if word == 0 { "zero".into() } else { format!("word {}", word as i32 - 1) },
        unit: words,
    }
}

/// Steps in a chunk of 128 bytes, and the number of steps tested: every step of an instruction, in
/// each of the four instructions of a chunk.
const CHUNK: usize = 64;
const TRIED: usize = 16;

/// `wgmma` with 64 rows on operands in the 128-byte swizzle, for several steps of a chunk.
fn group_product(dtype: DType, [width, run]: [usize; 2]) -> Instruction {
    let (word, sums) = (dtype.word(), width / 2);
    let place = "const int line = i / 64, k = i % 64, at = 128 * line + 2 * k;\n    \
         unsigned short *const to = (unsigned short *)(shared";
    let swizzle = "(at ^ (at >> 7 & 7) << 4))";
    let body = format!(
        "for (int n = 0; n < {TRIED}; ++n) {{\n  const int step = 5 * n % 64, next = (step + 1) % 64;\n  \
         for (int i = thread; i < 64 * 64; i += 128) {{\n    {place} + {swizzle};\n    \
         *to = to_{word}(k == step ? line + 1 : k == next ? 1 : 0);\n  }}\n  \
         for (int i = thread; i < {width} * 64; i += 128) {{\n    {place} + 8192 + {swizzle};\n    \
         *to = to_{word}(k == step ? {ROW:.1}f : k == next ? line + 1 : 0);\n  }}\n\
         #ifdef __CUDACC__\n  asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n#endif\n  __syncthreads();\n  \
         float sums[{sums}];\n  #pragma unroll\n  for (int i = 0; i < {sums}; ++i) sums[i] = 0;\n  \
         fence_sums(sums);\n  begin_products();\n  #pragma unroll\n  for (int s = 0; s < 4; ++s)\n    \
         group_{word}_n{width}x{run}(sums, matrix(shared) + 2 * s, matrix(shared + 8192) + 2 * s);\n  \
         end_products();\n  await_products<0>();\n  fence_sums(sums);\n  #pragma unroll\n  \
         for (int i = 0; i < {sums}; ++i) found[(128 * n + thread) * {sums} + i] = __float_as_uint(sums[i]);\n  \
         __syncthreads();\n}}",
    );
    // The sums of a row of `run` times 8 columns are contiguous.
    let held = |at: usize| {
        let (thread, place) = (at / sums % 128, at % sums);
        let (eights, row, column) = (place / (4 * run), place / (2 * run) % 2, place % (2 * run));
        let row = thread / 32 * 16 + thread % 32 / 4 + 8 * row;
        sum(row, 8 * (eights * run + column / 2) + thread % 4 * 2 + column % 2)
    };

    Instruction {
        name: format!("wgmma m64n{width}k16 {word}"),
        source: kernel(dtype, &[[width, run]], 128, "", &body),
        only: Some(90),
        threads: 128,
        shared_bytes: 8192 + 128 * width,
        given: vec![0],
        map: None,
        expected: (0..TRIED * 128 * sums).map(held).collect(),
        place: |at, sums| {
            let step = 5 * (at / (128 * sums)) % CHUNK;
            format!("step {step}, thread {}, sum {}", at / sums % 128, at % sums)
        },
        says: says_sum,
        unit: sums,
    }
}

/// Rows and columns of the matrix, and of the boxes that are copied from it; number of copies,
/// which alternate between two slots.
const MATRIX: [usize; 2] = [80, 72];
const BOX: [usize; 2] = [64, 64];
const TURNS: usize = 5;

/// Offset in rows and columns from one box to the next. An H200 rejects boxes that do not begin at
/// a multiple of 16 bytes in a row, as an illegal instruction.
const BOX_STEP: [usize; 2] = [9, 8];

/// Copies boxes to shared memory, some partly out of bounds. The phases of their mbarriers wrap
/// around twice. Element `c` of row `r` is `72*r + c + 1`.
fn copy_box() -> Instruction {
    let [[rows, columns], [box_rows, box_columns], [row_step, column_step]] = [MATRIX, BOX, BOX_STEP];
    let bytes = 2 * box_rows * box_columns;
    let words = bytes / 4;
    let body = format!(
        "unsigned long long *const arrivals = (unsigned long long *)(shared + {});\n\
         begin_arrivals(arrivals, 2, 0, 0);\nint awaited = 0;\n\
         for (int turn = 0; turn < {TURNS}; ++turn) {{\n  \
         const unsigned char *const slot = shared + turn % 2 * {bytes};\n  unsigned long long *const arrival = arrivals + turn % 2;\n  \
         if (thread == 0) copy_box(&map0, (void *)slot, turn * {column_step}, turn * {row_step}, arrival, {bytes});\n  \
         if (thread == 0) end_boxes(arrival);\n  await_boxes(arrivals, 2, awaited, turn + 1);\n  \
         for (int i = thread; i < {words}; i += 32) found[{words} * turn + i] = ((const unsigned *)slot)[i];\n  \
         __syncthreads();\n}}",
        2 * bytes,
    );

    let element = |row: usize, column: usize| {
        if row < rows && column < columns { row * columns + column + 1 } else { 0 }
    };
    let held = |at: usize| {
        let ([row, column], byte) = (BOX_STEP.map(|step| at / words * step), 4 * (at % words));
        let logical = byte ^ (byte / 128 % 8) << 4;
        let (row, column) = (row + logical / 128, column + logical % 128 / 2);
        pair(element(row, column), element(row, column + 1))
    };

    let numbers: Vec<usize> = (1..=rows * columns).collect();
    Instruction {
        name: "copy of boxes".into(),
        source: kernel(DType::F16, &[], 32, ", const __grid_constant__ TensorMap map0", &body),
        only: Some(90),
        threads: 32,
        shared_bytes: 2 * bytes + 16,
        given: numbers.chunks(2).map(|two| pair(two[0], two[1])).collect(),
        map: Some([MATRIX, BOX]),
        expected: (0..TURNS * words).map(held).collect(),
        place: |at, words| format!("turn {}, byte {} of the slot", at / words, 4 * (at % words)),
        says: |word| {
            let element = |half: u32| match (half as usize).checked_sub(1) {
                Some(e) => format!("row {} column {}", e / MATRIX[1], e % MATRIX[1]),
                None => "zero".into(),
            };
            format!("{} and {}", element(word & 0xffff), element(word >> 16))
        },
        unit: words,
    }
}
