//! Operands of workloads: random ones, whose outputs reveal wrong kernels, and checks of the
//! caller's.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use autotune_ir::DType;
use autotune_ir::dtype::Kind;
use autotune_ir::interp::{OperandError, check_operands};
use autotune_ir::program::{BinaryOp, Expr, Role, UnaryOp};
use autotune_ir::spec::{Spec, TensorSpec};
use ndarray::{ArrayD, IxDyn};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thiserror::Error;

use crate::parallel::for_each_chunk;

/// Operands of one run in their logical shapes, in the order of [`Spec::operands`].
#[derive(Clone, Debug, PartialEq)]
pub struct Operands {
    names: Vec<Cow<'static, str>>,
    tensors: Vec<ArrayD<f32>>,
}

impl Deref for Operands {
    type Target = [ArrayD<f32>];

    fn deref(&self) -> &[ArrayD<f32>] {
        &self.tensors
    }
}

impl DerefMut for Operands {
    fn deref_mut(&mut self) -> &mut [ArrayD<f32>] {
        &mut self.tensors
    }
}

impl Operands {
    /// Creates operands of a spec from tensors in the order of [`Spec::operands`]. Fails if they do
    /// not match ([`Operands::check`]).
    pub fn of(spec: &Spec, tensors: Vec<ArrayD<f32>>) -> Result<Self, OperandError> {
        let operands = Self { names: spec.operands().map(|tensor| tensor.name.clone()).collect(), tensors };
        operands.check(spec)?;
        Ok(operands)
    }

    /// Creates random operands that reveal wrong kernels.
    ///
    /// - Values are positive or negative, with magnitudes between 0.1 and 1, so that no term
    ///   vanishes.
    /// - Terms that are added to sums, such as a bias, are scaled to half the sums' typical size,
    ///   so that they matter as much.
    /// - If a function such as a sigmoid, which saturates, is applied to sums, one factor of each
    ///   product is scaled down by a power of two. Sums are then where the function is curved.
    /// - Indices into other tensors are integers, some of them out of range.
    /// - Arguments of logarithms and roots are positive.
    /// - Neighbours in the table of an epilogue differ by one at most, as indices do that are
    ///   rounded either way.
    ///
    /// Values are representable in the operand's type. Integers use the whole range, and are
    /// positive if the type is unsigned. The same seed gives the same values on every machine and
    /// with any number of cores.
    ///
    /// # Panics
    ///
    /// If the memory cannot be allocated.
    pub fn random(spec: &Spec, seed: u64) -> Self {
        match Self::try_random(spec, seed) {
            Ok(operands) => operands,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`Operands::random`], but fails if the memory cannot be allocated.
    pub fn try_random(spec: &Spec, seed: u64) -> Result<Self, OutOfMemory> {
        let (sum_scale, data_scale) = (0.5 * sum_size(spec), data_scale(spec));
        // The magnitude of a prologue's results is unknown, so the weights are scaled instead.
        let loads = spec.main().loads();
        let scaled = if spec.prologue().is_some() { loads.last() } else { loads.first() };
        let scaled = scaled.map(|access| &spec.tensor(access).name);

        // Largest magnitudes of a product of two integers, and of an element of the output.
        let factors = spec.main().loads().into_iter().map(|access| unit(spec.tensor(access).dtype));
        let (products, has_integers) = (factors.product::<f32>(), spec.multiplied_dtype().is_integer());
        let result = spec.find(Role::Output).map_or(1.0, |tensor| unit(tensor.dtype).min(sum_scale * products));

        let draw = |(number, tensor): (usize, &TensorSpec)| {
            let (seed, dtype) = ([seed, number as u64], tensor.dtype);
            if let Some(extent) = spec.indexes(tensor) {
                return random_tensor(&tensor.shape, seed, |x| index(x, extent));
            }
            if is_table(spec, tensor) {
                return random_tensor(&tensor.shape, seed, |x| x).map(|steps| ascending(steps, dtype));
            }
            if has_roots(spec, tensor) {
                return random_tensor(&tensor.shape, seed, |x| dtype.stored(unit(dtype) * x.abs()));
            }
            if dtype.is_integer() {
                let size = if is_multiplied(spec, tensor) { unit(dtype) } else { sum_scale * products };
                let sign = |x: f32| if dtype.kind() == Kind::Unsigned { x.abs() } else { x };
                return random_tensor(&tensor.shape, seed, |x| dtype.stored(size.min(unit(dtype)) * sign(x)));
            }
            if has_integers && !is_multiplied(spec, tensor) {
                let size =
                    if scales_sums(spec, tensor) { factor(spec, tensor, sum_scale * products, result) } else { result };
                return random_tensor(&tensor.shape, seed, |x| dtype.stored(size * x));
            }
            match is_multiplied(spec, tensor) {
                true if Some(&tensor.name) == scaled => {
                    random_tensor(&tensor.shape, seed, |x| dtype.multiplied(data_scale * x))
                }
                true => random_tensor(&tensor.shape, seed, |x| dtype.multiplied(x)),
                false if scales_sums(spec, tensor) => random_tensor(&tensor.shape, seed, |x| dtype.stored(x)),
                false => random_tensor(&tensor.shape, seed, |x| dtype.stored(sum_scale * x)),
            }
        };

        let tensors = spec.operands().enumerate().map(draw).collect::<Result<_, _>>()?;
        Ok(Self { names: spec.operands().map(|tensor| tensor.name.clone()).collect(), tensors })
    }

    /// Returns the operand with a role, if there is one.
    pub fn find(&self, role: Role) -> Option<&ArrayD<f32>> {
        match role {
            Role::Operand(number) => self.tensors.get(number),
            Role::Output | Role::Packed | Role::Accumulator => None,
        }
    }

    /// Returns the operand with a name, if there is one.
    pub fn named(&self, name: &str) -> Option<&ArrayD<f32>> {
        self.names.iter().position(|own| own == name).map(|number| &self.tensors[number])
    }

    /// Fails unless there are exactly the operands that the spec requires, with their shapes.
    pub fn check(&self, spec: &Spec) -> Result<(), OperandError> {
        check_operands(spec, self)
    }
}

/// Returns the magnitude of the largest operands: 1, or for integers the end of the range.
fn unit(dtype: DType) -> f32 {
    if dtype.is_integer() { dtype.range()[1] as f32 } else { 1.0 }
}

/// True for operands of the main equation and of equations before it. Others are read by the
/// epilogue, such as a bias.
fn is_multiplied(spec: &Spec, tensor: &TensorSpec) -> bool {
    let mut loads = spec.equations[..=spec.main].iter().flat_map(|equation| equation.loads());
    loads.any(|access| spec.tensor(access).name == tensor.name)
}

/// True for the table of an epilogue.
fn is_table(spec: &Spec, tensor: &TensorSpec) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::Gather(of) if spec.tensor(&of.access).name == tensor.name);
    tensor.dtype.bytes() == 1 && spec.equations.last().is_some_and(|tail| tail.value.any(&is_it))
}

/// Returns a table that begins with the least number of a type and ascends where `steps` are
/// positive.
fn ascending(mut steps: ArrayD<f32>, dtype: DType) -> ArrayD<f32> {
    let mut level = dtype.range()[0] as f32;
    for element in &mut steps {
        level += f32::from(*element > 0.0);
        *element = level;
    }
    steps
}

/// True if an equation takes a logarithm, root or power of the tensor, or of a function of it.
/// These are undefined for negative values.
fn has_roots(spec: &Spec, tensor: &TensorSpec) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::Load(access) if spec.tensor(access).name == tensor.name);
    let is_root = |expr: &Expr| match expr {
        Expr::Unary(UnaryOp::Log | UnaryOp::Log1p | UnaryOp::Sqrt | UnaryOp::Rsqrt, of) => of.any(&is_it),
        Expr::Binary(BinaryOp::Pow, of) => of[0].any(&is_it),
        _ => false,
    };
    spec.equations.iter().any(|equation| equation.value.any(&is_root))
}

/// True if the last equation multiplies by the tensor, such as the slopes of a PReLU.
fn scales_sums(spec: &Spec, tensor: &TensorSpec) -> bool {
    scales(spec, tensor, &|_| true)
}

/// True if the last equation multiplies by the tensor a value for which `is_such` holds.
fn scales(spec: &Spec, tensor: &TensorSpec, is_such: &dyn Fn(&Expr) -> bool) -> bool {
    let is_it = |of: &Expr| matches!(of, Expr::Load(access) if spec.tensor(access).name == tensor.name);
    let is_product = |of: &[Expr]| of.iter().any(is_it) && of.iter().any(|of| !is_it(of) && is_such(of));
    let is_factor = |expr: &Expr| matches!(expr, Expr::Binary(BinaryOp::Mul, of) if is_product(&of[..]));
    spec.equations.last().is_some_and(|tail| tail.value.any(&is_factor))
}

/// Returns the size of a factor that brings sums of integers, or integers that are added, to the
/// size of results; 1 for a factor of what has been scaled before.
fn factor(spec: &Spec, tensor: &TensorSpec, sums: f32, result: f32) -> f32 {
    let is_load =
        |expr: &Expr, of: &TensorSpec| matches!(expr, Expr::Load(access) if spec.tensor(access).name == of.name);
    let mut added = spec.operands().filter(|other| !is_multiplied(spec, other));
    if let Some(other) = added.find(|other| scales(spec, tensor, &|of| is_load(of, other))) {
        return if other.dtype.is_integer() { result / sums.min(unit(other.dtype)) } else { 1.0 };
    }
    let is_given = |expr: &Expr| spec.operands().any(|other| is_load(expr, other));
    let is_scaled = |expr: &Expr| matches!(expr, Expr::Binary(BinaryOp::Mul, of) if of.iter().any(is_given));
    if scales(spec, tensor, &|of| of.any(&is_scaled)) { 1.0 } else { result / sums }
}

/// True if the last equation contains a function that is curved near zero or saturates.
pub(crate) fn is_nonlinear(spec: &Spec) -> bool {
    let does = |expr: &Expr| matches!(expr, Expr::Unary(..) | Expr::Binary(BinaryOp::Min, _));
    spec.equations.last().is_some_and(|tail| tail.value.any(&does))
}

/// True if such a function is applied to sums of products.
pub(crate) fn is_nonlinear_in_sums(spec: &Spec) -> bool {
    is_nonlinear(spec) && spec.is_contraction()
}

/// Returns the scale of one factor of products. If a function of the sums is curved, it is the
/// power of two that brings long sums to a magnitude between 2 and 4; else 1.
fn data_scale(spec: &Spec) -> f32 {
    if !is_nonlinear_in_sums(spec) {
        return 1.0;
    }
    let halvings = (0.5 * (spec.reduction_len() as f32).log2() - 2.0).ceil();
    0.5f32.powf(halvings.max(0.0))
}

/// Returns the typical magnitude of sums of random operands, `sqrt(k)` for `k` products.
pub(crate) fn sum_size(spec: &Spec) -> f32 {
    data_scale(spec) * (spec.reduction_len() as f32).sqrt()
}

/// Error of an allocation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot allocate {bytes} bytes")]
pub struct OutOfMemory {
    /// Number of bytes requested (`usize::MAX` if it overflows).
    pub bytes: usize,
}

impl OutOfMemory {
    /// Allocates a vector of zeros.
    pub fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>, Self> {
        let mut values = Vec::new();
        let bytes = len.saturating_mul(size_of::<T>());
        values.try_reserve_exact(len).map_err(|_| Self { bytes })?;
        values.resize(len, T::default());
        Ok(values)
    }
}

/// Returns an index made from a value in ±[0.1, 1): an integer, every sixteenth out of range on
/// either side.
fn index(x: f32, extent: usize) -> f32 {
    let share = (x.abs() - 0.1) / 0.9;
    let beyond = if x < 0.0 { 0.0 } else { 1.125 };
    let place = if share < 0.0625 { beyond * extent as f32 - 1.0 } else { (share - 0.0625) / 0.9375 * extent as f32 };
    place.floor()
}

/// Number of elements drawn by one thread at a time.
const DRAWN_IN_A_ROW: usize = 1 << 14;

/// Returns random values in ±[0.1, 1), each converted by `rounded`. `seed` is shared by all
/// tensors, `tensor` is the number of this one.
fn random_tensor(
    shape: &[usize],
    [seed, tensor]: [u64; 2],
    rounded: impl Fn(f32) -> f32 + Sync,
) -> Result<ArrayD<f32>, OutOfMemory> {
    let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
    let mut values = OutOfMemory::zeros(len.unwrap_or(usize::MAX))?;
    for_each_chunk(&mut values, DRAWN_IN_A_ROW, |chunk, values| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(chunk as u64 | tensor << 40);
        values.iter_mut().for_each(|x| *x = rounded(value(&mut rng)));
    });
    let bytes = usize::MAX;
    ArrayD::from_shape_vec(IxDyn(shape), values).map_err(|_| OutOfMemory { bytes })
}

/// Returns a uniform value in ±[0.1, 1): a sign and 24 bits of the magnitude.
fn value(rng: &mut impl Rng) -> f32 {
    let bits = rng.next_u32();
    let magnitude = 0.1 + 0.9 * ((bits >> 8) as f32 / (1u32 << 24) as f32);
    // Rounding could otherwise result in 1.
    let magnitude = magnitude.min(1.0f32.next_down());
    if bits & 1 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn random_operands_have_the_workloads_shapes_and_no_easy_values() {
        let workload: Workload = "conv2d:c=8,h=5,w=6,o=4,k=3,p=1,g=2,bias,add".parse().unwrap();
        let operands = Operands::random(workload.spec(), 7);
        assert_eq!(operands.check(workload.spec()), Ok(()));
        assert_eq!(operands, Operands::random(workload.spec(), 7));
        assert_ne!(operands, Operands::random(workload.spec(), 8));
        assert!(operands[0].iter().chain(&operands[1]).all(|x| (0.1..1.0).contains(&x.abs())));
        assert!(operands[0].iter().any(|&x| x > 0.0) && operands[0].iter().any(|&x| x < 0.0));
        let [bias, residual] = ["bias", "residual"].map(|name| operands.named(name).unwrap());
        assert!(bias.iter().chain(residual).all(|x| (0.3..3.0).contains(&x.abs())));
    }

    #[test]
    fn sums_are_where_functions_bend() {
        let of = |act: &str| format!("matmul:m=30,n=40,k=4096,scale,bias,act={act}").parse::<Workload>().unwrap();
        let magnitude = |values: &ArrayD<f32>| values.iter().map(|x| x.abs()).sum::<f32>() / values.len() as f32;
        for (act, size) in [("relu", 64.0), ("prelu", 64.0), ("clip:0:6", 4.0), ("gelu", 4.0)] {
            let workload = of(act);
            let operands = Operands::random(workload.spec(), 7);
            assert_eq!(sum_size(workload.spec()), size, "{act}");
            assert!((0.4..0.7).contains(&(magnitude(&operands[0]) * 64.0 / size)), "{act}");
            assert!((0.4..0.7).contains(&magnitude(&operands[1])), "{act}");
            assert!((0.4..0.7).contains(&magnitude(operands.named("output_scale").unwrap())), "{act}");
            assert!((0.2..0.35).contains(&(magnitude(operands.named("bias").unwrap()) / size)), "{act}");
            if let Some(slopes) = operands.named("slope") {
                assert!((0.4..0.7).contains(&magnitude(slopes)), "{act}");
            }
        }
    }

    #[test]
    fn operands_of_another_workload_are_named() {
        let plain: Workload = "matmul:m=3,n=4,k=5".parse().unwrap();
        let biased: Workload = "matmul:m=3,n=4,k=5,bias".parse().unwrap();
        let wider: Workload = "matmul:m=3,n=6,k=5".parse().unwrap();
        let operands = Operands::random(plain.spec(), 0);
        assert_eq!(operands.check(biased.spec()).unwrap_err().operand, "bias");
        assert_eq!(operands.check(wider.spec()).unwrap_err().operand, "weight");
        assert_eq!(Operands::random(biased.spec(), 0).check(plain.spec()).unwrap_err().operand, "number 2");
    }
}
