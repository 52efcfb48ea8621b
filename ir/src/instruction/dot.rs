//! Dot products of groups of reduction steps in the lanes of vectors.

use super::{Asynchrony, Executor, Factors, Feature, Instruction, Registers, Site};
use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::program::{Access, Loop, LoopKind, Node, Program, Scope, Store, StoreMode};
use crate::target::{CpuTarget, Isa};

/// `vdpbf16ps` of a [`Dot`] (AVX512_BF16): each lane adds two products. It takes denormal factors and sums as zero
/// (Intel, "Software Developer's Manual", volume 2).
pub static DOT_BF16: Instruction = Instruction {
    name: "vdpbf16ps",
    factors: &[Factors { dtype: DType::Bf16, steps: 2 }],
    executor: Executor::Core,
    registers: Registers::Vector,
    feature: Feature::Cpu(Isa::Avx512, "avx512bf16"),
    asynchrony: Asynchrony::Nothing,
    check: |body, site| Dot::check(body, site, &DOT_BF16),
};

/// Instructions of CPUs that multiply.
static DOTS: [&Instruction; 1] = [&DOT_BF16];

/// Returns the instruction of a CPU that multiplies factors of some types, if it has one.
pub fn dot_of(cpu: &CpuTarget, factors: [DType; 2]) -> Option<&'static Instruction> {
    let [dtype, other] = factors;
    let multiplies = |dot: &&&Instruction| dot.steps(dtype).is_some() && dot.feature.is_of_cpu(cpu);
    DOTS.iter().find(multiplies).copied().filter(|_| dtype == other)
}

/// The nest of a dot product, whose steps lie side by side in both factors, as one word of 32 bits:
///
/// ```text
/// unrolled s in 0..STEPS
///   vectorized v in 0..V               (or none: a single sum)
///     sums[.., v] += a[s + ..] * b[s + ..]
/// ```
///
/// By the row-major offsets of `a` and `b`; `..` stands for multiples of `STEPS` in these, and for anything without `s`
/// in the index of the sums.
pub struct Dot<'a> {
    /// The loop over the steps.
    pub steps: &'a Loop,
    /// The loop over the lanes; none for a single sum.
    pub lanes: Option<&'a Loop>,
    /// The multiply-accumulate.
    pub store: &'a Store,
    /// Its factors.
    pub factors: [&'a Access; 2],
}

impl<'a> Dot<'a> {
    /// Returns the parts of a nest; `None` if it has another structure.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let [Node::Loop(steps)] = body else { return None };
        let (lanes, inner) = match &steps.body[..] {
            [Node::Loop(lanes)] if lanes.kind == LoopKind::Vectorized => (Some(lanes), &lanes.body[..]),
            other => (None, other),
        };
        let [Node::Store(store)] = inner else { return None };
        Some(Self { steps, lanes, store, factors: store.factors()? })
    }

    fn check(body: &[Node], site: &Site, instruction: &Instruction) -> Result<(), &'static str> {
        let Some(dot) = Dot::of(body) else { return Err("a dot product of another form") };
        let dtypes = dot.factors.map(|factor| site.program.dtype(factor.buffer));
        let Some(steps) = instruction.steps(dtypes[0]).filter(|_| dtypes[0] == dtypes[1]) else {
            return Err("a dot product of types that the instruction does not multiply");
        };
        if dot.steps.kind != LoopKind::Unrolled || dot.steps.extent != steps {
            return Err("a dot product of another number of steps");
        }
        if !dot.has_own_sums(site.program, dtypes[0].accumulator()) {
            return Err("a dot product with sums elsewhere than in registers");
        }
        if !dot.factors.iter().all(|factor| is_by_words(factor, dot.steps.var, steps, site.program)) {
            return Err("a dot product whose steps are not side by side");
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

/// True if the elements of an access lie in whole groups of `steps` elements, which `var` numbers.
fn is_by_words(access: &Access, var: VarId, steps: usize, program: &Program) -> bool {
    let dims = access.index.iter().zip(program.buffer(access.buffer).strides());
    let offset = dims.fold(Affine::default(), |mut offset, (index, stride)| {
        offset.add_scaled(index, stride);
        offset
    });
    let is_whole = |count: i64| count % steps as i64 == 0;
    let mut others = offset.terms.iter().filter(|term| term.0 != var);
    offset.coefficient(var) == 1 && is_whole(offset.constant) && others.all(|term| is_whole(term.1))
}
