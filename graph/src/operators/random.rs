//! Imports of random numbers, which are constants that a seed determines.

use std::f64::consts::TAU;

use super::binary::Binary;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::tensor::extents;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("RandomNormal", |call| of_attribute(call, Distribution::normal)),
    OnnxOperator::one("RandomUniform", |call| of_attribute(call, Distribution::uniform)),
    OnnxOperator::one("RandomNormalLike", |call| of_input(call, Distribution::normal)),
    OnnxOperator::one("RandomUniformLike", |call| of_input(call, Distribution::uniform)),
    OnnxOperator::one("Bernoulli", bernoulli),
];

/// Distribution of random numbers.
#[derive(Clone, Copy)]
enum Distribution {
    /// Between two ends, the second of which is excluded.
    Uniform { low: f64, high: f64 },
    /// Around a mean, with a standard deviation.
    Normal { mean: f64, deviation: f64 },
}

impl Distribution {
    fn uniform(call: &Call) -> Result<Self> {
        Ok(Self::Uniform { low: call.float_or("low", 0.0)?.into(), high: call.float_or("high", 1.0)?.into() })
    }

    fn normal(call: &Call) -> Result<Self> {
        let (mean, deviation) = (call.float_or("mean", 0.0)?, call.float_or("scale", 1.0)?);
        Ok(Self::Normal { mean: mean.into(), deviation: deviation.into() })
    }

    fn next(self, random: &mut SplitMix) -> f32 {
        let number = match self {
            Self::Uniform { low, high } => low + (high - low) * random.fraction(),
            Self::Normal { mean, deviation } => {
                // The transform of Box and Muller; the logarithm's argument is above 0.
                let (radius, turn) = (-2.0 * (1.0 - random.fraction()).ln(), random.fraction());
                mean + deviation * radius.sqrt() * (TAU * turn).cos()
            }
        };
        number as f32
    }
}

/// State of the generator SplitMix64.
struct SplitMix(u64);

impl SplitMix {
    /// Returns a multiple of 2^-24 below 1, which f32 represents.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 40) as f64 / f64::from(1 << 24)
    }
}

/// Imports numbers of the shape that an attribute has.
fn of_attribute(call: &mut Call, of: fn(&Call) -> Result<Distribution>) -> Result<ImportValue> {
    call.check_most(0)?;
    let shape = call.ints("shape")?.ok_or_else(|| attribute("shape", "is missing"))?;
    let shape = extents(shape).map_err(NodeError::Unfit)?;
    let distribution = of(call)?;
    let dtype = call.element_type("dtype")?.unwrap_or(DType::F32);
    let numbers = random(call, distribution, &shape)?;
    call.cast(dtype, numbers)
}

/// Imports numbers of an input's shape and, unless an attribute says otherwise, type.
fn of_input(call: &mut Call, of: fn(&Call) -> Result<Distribution>) -> Result<ImportValue> {
    let x = call.only()?;
    let distribution = of(call)?;
    let dtype = call.element_type("dtype")?.unwrap_or(call.dtype(x));
    let numbers = random(call, distribution, &call.shape(x))?;
    call.cast(dtype, numbers)
}

/// Imports ones with the probabilities that the input has, and zeros.
fn bernoulli(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let dtype = call.element_type("dtype")?.unwrap_or(call.dtype(x));
    let numbers = random(call, Distribution::Uniform { low: 0.0, high: 1.0 }, &call.shape(x))?;
    let is_one = call.binary(Binary::Less, numbers, x)?;
    call.cast(dtype, is_one)
}

/// Adds constant random numbers, which the node's seed determines.
fn random(call: &mut Call, distribution: Distribution, shape: &[usize]) -> Result<ImportValue> {
    let reason = "is missing: random numbers are supported if they may be the same in every run";
    let seed = call.float("seed")?.ok_or_else(|| attribute("seed", reason))?;
    let mut random = SplitMix(seed.to_bits().into());
    let count = elements(shape)?;
    call.computed(shape, || (0..count).map(|_| distribution.next(&mut random)).collect())
}
