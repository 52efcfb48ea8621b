//! Ceiling loops for x86-64 in inline assembly: they need no compiler at run time, and do not
//! depend on the optimisation level of this crate.

use std::arch::asm;
use std::ffi::{c_char, c_long};

use super::loops::{CeilingLoop, LINE, ROUNDS, TILE_ROUNDS, chunk};
use autotune_ir::instruction::{
    DOT_BF16, DOT_U8_I8, DOT_U8_I8_AVX2, Instruction, PAIRS_I16, PAIRS_I16_AVX2, TILE_BF16, TILE_I8,
};
use autotune_runtime::team::StageFn;
use autotune_runtime::tiles;

/// Returns the function of a loop; `None` if this processor has none.
pub(super) fn find(name: CeilingLoop) -> Option<StageFn> {
    let avx512 = is_x86_feature_detected!("avx512f");
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match name {
        CeilingLoop::MultiplyAdd { lanes: 16 } if avx512 => Some(multiply_add_16),
        CeilingLoop::MultiplyAdd { lanes: 8 } if avx2 => Some(multiply_add_8),
        CeilingLoop::Dot(dot) => {
            dots(avx512, avx2).into_iter().find(|(known, has, _)| *known == dot && *has).map(|dot| dot.2)
        }
        // The system grants tile registers only if the processor has them.
        CeilingLoop::Tile(tile) if tiles::request().is_ok() => {
            TILES.into_iter().find(|(known, _)| *known == tile).map(|tile| tile.1)
        }
        CeilingLoop::Read if avx512 => Some(read_16),
        CeilingLoop::Read if avx2 => Some(read_8),
        _ => None,
    }
}

/// Tile instructions and their loops.
const TILES: [(&Instruction, StageFn); 2] = [(&TILE_BF16, tiles_bf16), (&TILE_I8, tiles_u8_i8)];

/// Returns the dot-product instructions, whether this processor supports each, and their loops.
fn dots(avx512: bool, avx2: bool) -> [(&'static Instruction, bool, StageFn); 5] {
    let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
    [
        (&DOT_BF16, avx512 && is_x86_feature_detected!("avx512bf16"), dot_bf16),
        (&DOT_U8_I8, vnni, dot_u8_i8),
        (&DOT_U8_I8_AVX2, avx2 && is_x86_feature_detected!("avxvnni"), dot_u8_i8_avx2),
        (&PAIRS_I16, avx512 && is_x86_feature_detected!("avx512bw"), pairs_i16),
        (&PAIRS_I16_AVX2, avx2, pairs_i16_avx2),
    ]
}

/// Defines a loop of multiply-adds by one instruction on vector registers named `$r`. `$before` is
/// an instruction to execute before each, possibly empty; the `$n` are the accumulator registers.
macro_rules! multiply_adds {
    ($name:ident, $feature:literal, $before:literal, $instruction:literal, $r:literal, $($n:literal)*) => {
        /// # Safety
        ///
        /// As [`CeilingLoop::MultiplyAdd`], on a processor that supports the feature and the
        /// instruction.
        #[target_feature(enable = $feature)]
        unsafe extern "C" fn $name(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
            for task in begin..end {
                let line = LINE as isize * task as isize;
                // SAFETY: the caller guarantees the buffers. The code accesses at most one line of
                // each and declares every register it changes.
                unsafe {
                    asm!(
                        concat!("vmovups ", $r, "12, [{data}]"),
                        $(concat!("vmovaps ", $r, $n, ", ", $r, "12"),)*
                        "2:",
                        $(concat!($before, $instruction, " ", $r, $n, ", ", $r, "12, ", $r, "12"),)*
                        "sub {rounds}, 1",
                        "jnz 2b",
                        $(concat!("vaddps ", $r, "12, ", $r, "12, ", $r, $n),)*
                        concat!("vmovups [{sum}], ", $r, "12"),
                        data = in(reg) (*buffers).offset(line),
                        sum = in(reg) (*buffers.add(1)).offset(line),
                        rounds = inout(reg) ROUNDS => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                        out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _,
                        options(nostack),
                    );
                }
            }
        }
    };
}

/// Defines the multiply-add and read loops for vector registers named `$r` of `$bytes` bytes. The
/// `$n` and `$m` are their accumulator registers.
macro_rules! loops {
    ($multiply_add:ident, $read:ident, $feature:literal, $r:literal, $bytes:literal, $($n:literal)*; $($m:literal)*) => {
        multiply_adds!($multiply_add, $feature, "", "vfmadd213ps", $r, $($n)*);

        /// # Safety
        ///
        /// As [`CeilingLoop::Read`], on a processor that supports the feature.
        #[target_feature(enable = $feature)]
        unsafe extern "C" fn $read(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
            for task in begin..end {
                // SAFETY: the caller guarantees the buffers. The code reads one chunk, writes at
                // most one line, and declares every register it changes.
                unsafe {
                    let chunk = chunk(buffers);
                    let data = (*buffers).add(chunk * task as usize);
                    asm!(
                        "vxorps xmm8, xmm8, xmm8",
                        $(concat!("vmovaps ", $r, $m, ", ", $r, "8"),)*
                        "2:",
                        $(concat!("vaddps ", $r, $m, ", ", $r, $m, ", [{data} + ", $bytes, "*", $m, "]"),)*
                        concat!("add {data}, 8*", $bytes),
                        "cmp {data}, {end}",
                        "jb 2b",
                        $(concat!("vaddps ", $r, "8, ", $r, "8, ", $r, $m),)*
                        concat!("vmovups [{sum}], ", $r, "8"),
                        data = inout(reg) data => _,
                        end = in(reg) data.add(chunk),
                        sum = in(reg) (*buffers.add(1)).offset(LINE as isize * task as isize),
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                        out("xmm6") _, out("xmm7") _, out("xmm8") _,
                        options(nostack),
                    );
                }
            }
        }
    };
}

loops!(multiply_add_8, read_8, "avx2,fma", "ymm", "32", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"; "0" "1" "2" "3" "4" "5" "6" "7");
loops!(multiply_add_16, read_16, "avx512f", "zmm", "64", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11"; "0" "1" "2" "3" "4" "5" "6" "7");
multiply_adds!(dot_bf16, "avx512f", "", "vdpbf16ps", "zmm", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11");
multiply_adds!(dot_u8_i8, "avx512f", "", "vpdpbusd", "zmm", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11");
multiply_adds!(dot_u8_i8_avx2, "avx2", "{{vex}} ", "vpdpbusd", "ymm", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11");
// The addition uses the operands instead of the products (`r13`), which takes the same time.
multiply_adds!(pairs_i16, "avx512f", "vpmaddwd zmm13, zmm12, zmm12\n", "vpaddd", "zmm", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11");
multiply_adds!(pairs_i16_avx2, "avx2", "vpmaddwd ymm13, ymm12, ymm12\n", "vpaddd", "ymm", "0" "1" "2" "3" "4" "5" "6" "7" "8" "9" "10" "11");

/// Configuration of all tile registers: 16 rows of 64 bytes.
static WHOLE_TILES: [u8; 64] = {
    let mut config = [0; 64];
    // Palette, then bytes per row, 16 bits for each register, and rows.
    config[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        config[16 + 2 * tile] = 64;
        config[48 + tile] = 16;
        tile += 1;
    }
    config
};

/// Defines a loop of products of tiles by one instruction.
macro_rules! tile_products {
    ($name:ident, $instruction:literal) => {
        /// # Safety
        ///
        /// As [`CeilingLoop::Tile`], on a processor that supports the instruction, in a process
        /// that may use tile registers.
        unsafe extern "C" fn $name(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
            for task in begin..end {
                let line = LINE as isize * task as isize;
                // SAFETY: the caller guarantees the buffers. The code accesses one line of each,
                // since rows have no distance, and declares every register it changes.
                unsafe {
                    asm!(
                        "ldtilecfg [{config}]",
                        "tilezero tmm0",
                        "tilezero tmm1",
                        "tilezero tmm2",
                        "tilezero tmm3",
                        "tileloadd tmm4, [{data} + {distance}]",
                        "tileloadd tmm5, [{data} + {distance}]",
                        "tileloadd tmm6, [{data} + {distance}]",
                        "tileloadd tmm7, [{data} + {distance}]",
                        "2:",
                        concat!($instruction, " tmm0, tmm4, tmm6"),
                        concat!($instruction, " tmm1, tmm4, tmm7"),
                        concat!($instruction, " tmm2, tmm5, tmm6"),
                        concat!($instruction, " tmm3, tmm5, tmm7"),
                        "sub {rounds}, 1",
                        "jnz 2b",
                        "tilestored [{sum} + {distance}], tmm0",
                        "tilerelease",
                        config = in(reg) &raw const WHOLE_TILES,
                        data = in(reg) (*buffers).offset(line),
                        sum = in(reg) (*buffers.add(1)).offset(line),
                        distance = in(reg) 0usize,
                        rounds = inout(reg) TILE_ROUNDS => _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }
        }
    };
}

tile_products!(tiles_bf16, "tdpbf16ps");
tile_products!(tiles_u8_i8, "tdpbusd");
