//! Instruction sets to simulate.

use autotune_ir::Isa;

/// Parameters of a simulated instruction set.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct SimulatedSet {
    pub(in super::super) lanes: u8,
    pub(in super::super) registers: usize,
    pub(in super::super) integers: usize,
    /// Support for memory operands of arithmetic: whole vectors, and broadcast elements.
    pub(in super::super) operands: [bool; 2],
    /// True if there are products with powers of two.
    pub(in super::super) scales: bool,
    /// True if there are dot product instructions.
    pub(in super::super) dots: bool,
    pub(in super::super) rounds_to_f16: bool,
    pub(in super::super) rounds_to_bf16: bool,
    pub(in super::super) packs_bytes: bool,
    /// True if packed bytes can be looked up in a table.
    pub(in super::super) has_tables: bool,
    /// True if there are tile registers.
    pub(in super::super) tiles: bool,
    /// Number of columns of a supported transpose.
    pub(in super::super) transposes: Option<u8>,
    /// Number of rows of a supported interleaving.
    pub(in super::super) interleaved_rows: Option<u8>,
}

/// Simulated instruction sets, each with the instruction set for which its programs are lowered.
pub(in super::super) const SETS: [(Isa, SimulatedSet); 5] = [
    (
        Isa::Neon,
        SimulatedSet {
            lanes: 4,
            registers: 32,
            integers: 20,
            operands: [false, false],
            scales: false,
            dots: true,
            rounds_to_f16: true,
            rounds_to_bf16: true,
            packs_bytes: true,
            has_tables: true,
            tiles: true,
            transposes: None,
            interleaved_rows: Some(3),
        },
    ),
    (
        Isa::Neon,
        SimulatedSet {
            lanes: 4,
            registers: 27,
            integers: 11,
            operands: [false, true],
            scales: true,
            dots: false,
            rounds_to_f16: false,
            rounds_to_bf16: false,
            packs_bytes: false,
            has_tables: false,
            tiles: false,
            transposes: Some(4),
            interleaved_rows: None,
        },
    ),
    (
        Isa::Generic,
        SimulatedSet {
            lanes: 4,
            registers: 16,
            integers: 32,
            operands: [true, false],
            scales: false,
            dots: false,
            rounds_to_f16: false,
            rounds_to_bf16: true,
            packs_bytes: true,
            has_tables: true,
            tiles: false,
            transposes: Some(4),
            interleaved_rows: None,
        },
    ),
    (
        Isa::Avx2,
        SimulatedSet {
            lanes: 8,
            registers: 17,
            integers: 13,
            operands: [true, true],
            scales: true,
            dots: true,
            rounds_to_f16: true,
            rounds_to_bf16: true,
            packs_bytes: false,
            has_tables: false,
            tiles: false,
            transposes: Some(8),
            interleaved_rows: Some(5),
        },
    ),
    (
        Isa::Avx512,
        SimulatedSet {
            lanes: 8,
            registers: 32,
            integers: 15,
            operands: [false, false],
            scales: true,
            dots: false,
            rounds_to_f16: false,
            rounds_to_bf16: false,
            packs_bytes: true,
            has_tables: false,
            tiles: true,
            transposes: Some(5),
            interleaved_rows: Some(3),
        },
    ),
];
