//! Vector instructions that add the products of several reduction steps in each lane.

use super::tile::offset;
use super::{Asynchrony, CallSite, Executor, Factors, Feature, Instruction, NestForm, Registers};
use crate::affine::VarId;
use crate::dtype::DType;
use crate::program::{Access, Loop, LoopKind, Node, Program, Scope, Store, StoreMode};
use crate::target::{CpuTarget, Isa};

/// `vdpbf16ps` of a [`Dot`] (AVX512_BF16): each lane adds two products. Denormal factors and sums
/// are treated as zero (Intel, "Software Developer's Manual", volume 2).
pub static DOT_BF16: Instruction = Instruction {
    name: "vdpbf16ps",
    factors: &[Factors::of(DType::Bf16, 2)],
    feature: Feature::Cpu(Isa::Avx512, "avx512bf16"),
    ..DOT
};

/// `vpdpbusd` (AVX512_VNNI): each lane adds four products of an unsigned and a signed byte,
/// wrapping in 32 bits.
pub static DOT_U8_I8: Instruction = Instruction {
    name: "vpdpbusd",
    factors: &[Factors { dtypes: [DType::U8, DType::I8], steps: 4 }],
    feature: Feature::Cpu(Isa::Avx512, "avx512vnni"),
    ..DOT
};

/// `vpdpbusd` for 256-bit vectors (AVX-VNNI).
pub static DOT_U8_I8_AVX2: Instruction =
    Instruction { name: "vpdpbusd.avx2", feature: Feature::Cpu(Isa::Avx2, "avxvnni"), ..DOT_U8_I8 };

/// `vpdpwssd` (AVX512_VNNI): each lane adds two products of 16-bit integers, wrapping in 32 bits.
pub static DOT_I16: Instruction = Instruction {
    name: "vpdpwssd",
    factors: &[Factors::of(DType::I16, 2)],
    feature: Feature::Cpu(Isa::Avx512, "avx512vnni"),
    ..DOT
};

/// `vpmaddwd` and an addition: [`DOT_I16`] in two instructions.
pub static PAIRS_I16: Instruction = Instruction {
    name: "vpmaddwd",
    feature: Feature::Isa(Isa::Avx512),
    registers: Registers::Vector { products: 1 },
    ..DOT_I16
};

/// `vpmaddwd` and an addition for 256-bit vectors.
pub static PAIRS_I16_AVX2: Instruction = Instruction {
    name: "vpmaddwd.avx2",
    feature: Feature::Isa(Isa::Avx2),
    registers: Registers::Vector { products: 1 },
    ..DOT_I16
};

/// Common properties of dot products in vector lanes.
const DOT: Instruction = Instruction {
    name: "",
    factors: &[],
    executor: Executor::Core,
    registers: Registers::Vector { products: 0 },
    feature: Feature::Isa(Isa::Generic),
    asynchrony: Asynchrony::Nothing,
    nest: NestForm::DotProduct,
};

/// Dot-product instructions of CPUs, in order of preference: more steps first.
static DOTS: [&Instruction; 6] = [&DOT_BF16, &DOT_U8_I8, &DOT_U8_I8_AVX2, &DOT_I16, &PAIRS_I16, &PAIRS_I16_AVX2];

/// Returns the instruction of `cpu` that multiplies factors of these types with most steps at a
/// time. Also returns the types to which the factors are converted without loss. `None` if the CPU
/// has no such instruction, or multiplies widened factors faster.
pub fn dot_of(cpu: &CpuTarget, factors: [DType; 2]) -> Option<(&'static Instruction, Factors)> {
    let has = |known: &&Factors| (0..2).all(|factor| known.dtypes[factor].holds(factors[factor]));
    let of_cpu = DOTS.iter().filter(|dot| dot.feature.is_of_cpu(cpu) && !is_slow(dot, cpu));
    of_cpu.filter_map(|&dot| Some((dot, *dot.factors.iter().find(has)?))).next()
}

/// Returns true if multiply-adds of as many widened factors take less time. Intel's processors
/// start a `vdpbf16ps` every second cycle and two multiply-adds each cycle: 75 GFLOP/s against 175
/// (family 6, model 207).
fn is_slow(dot: &Instruction, cpu: &CpuTarget) -> bool {
    *dot == DOT_BF16 && cpu.model.starts_with("GenuineIntel")
}

/// Returns true if some CPU instruction adds the products of `steps` steps at a time.
pub(crate) fn is_dot_length(steps: usize) -> bool {
    DOTS.iter().flat_map(|dot| dot.factors).any(|factors| factors.steps == steps)
}

/// Loop nest of a dot product. Its steps are contiguous in both factors and fill one 32-bit word;
/// the order of the factors is that of the instruction's types:
///
/// ```text
/// unrolled s in 0..STEPS
///   vectorized v in 0..V               (or none: a single sum)
///     sums[.., v] += a[s + ..] * b[s + ..]
/// ```
///
/// The indices stand for row-major offsets in `a` and `b`. There, `..` is a multiple of `STEPS`; in
/// the index of the sums, it is anything without `s`.
pub struct Dot<'a> {
    /// Loop over the reduction steps.
    pub steps: &'a Loop,
    /// Vectorised loop over the lanes; `None` for a single sum.
    pub lanes: Option<&'a Loop>,
    /// The multiply-accumulate in the innermost loop.
    pub store: &'a Store,
    /// The two factors of the multiply-accumulate.
    pub factors: [&'a Access; 2],
}

impl<'a> Dot<'a> {
    /// Matches the parts of a nest; `None` if it has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let [Node::Loop(steps)] = body else { return None };
        let (lanes, inner) = match &steps.body[..] {
            [Node::Loop(lanes)] if lanes.kind == LoopKind::Vectorized => (Some(lanes), &lanes.body[..]),
            other => (None, other),
        };
        let [Node::Store(store)] = inner else { return None };
        Some(Self { steps, lanes, store, factors: store.factors()? })
    }

    /// Checks that a body is a dot product that `instruction` computes.
    pub(super) fn check(body: &[Node], site: &CallSite, instruction: &Instruction) -> Result<(), &'static str> {
        let Some(dot) = Dot::of(body) else { return Err("not a dot product of this instruction") };
        let dtypes = dot.factors.map(|factor| site.program.dtype(factor.buffer));
        let Some(&Factors { steps, .. }) = instruction.factors.iter().find(|factors| factors.dtypes == dtypes) else {
            return Err("the instruction does not multiply these element types");
        };
        if dot.steps.kind != LoopKind::Unrolled || dot.steps.extent != steps {
            return Err("the number of unrolled steps is not that of the instruction");
        }
        if !dot.has_own_sums(site.program, dtypes[0].accumulator()) {
            return Err("the sums of a dot product must be in registers");
        }
        if !dot.factors.iter().all(|factor| is_by_words(factor, dot.steps.var, steps, site.program)) {
            return Err("the steps of a dot product must be adjacent in memory");
        }
        Ok(())
    }

    fn has_own_sums(&self, program: &Program, dtype: DType) -> bool {
        let sums = program.buffer(self.store.dst.buffer);
        sums.scope == Scope::Register
            && sums.dtype == dtype
            && self.store.mode == StoreMode::Accumulate
            && self.store.dst.index.iter().all(|index| !index.uses(self.steps.var))
    }
}

/// Returns true if an access reads whole words of `steps` contiguous elements, and `var` is the
/// position within a word.
fn is_by_words(access: &Access, var: VarId, steps: usize, program: &Program) -> bool {
    let offset = offset(access, program);
    // A word must begin at a multiple of its own size, whatever the values of the other variables.
    let is_whole = |count: i64| count % steps as i64 == 0;
    let mut others = offset.terms.iter().filter(|term| term.0 != var);
    offset.coefficient(var) == 1 && is_whole(offset.constant) && others.all(|term| is_whole(term.1))
}
