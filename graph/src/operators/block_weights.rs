//! Imports of products with weights that are quantised in blocks.

use super::binary::Binary;
use super::matmul::MatMul;
use super::prelude::*;
use crate::onnx::MICROSOFT;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("MatMulNBits", import).of_bytes().in_domain(MICROSOFT)];

/// Layout of quantised weights: `n` columns of `k` numbers of `bits` bits, in blocks of `block`
/// numbers with a scale and a zero point each. Blocks and columns begin at a byte.
struct BlockWeights {
    n: usize,
    k: usize,
    block: usize,
    bits: usize,
}

impl BlockWeights {
    fn of(call: &Call) -> Result<Self> {
        let size = |name, default| {
            let size = usize::try_from(call.int_or(name, default)?).ok().filter(|&size| 0 < size && size < 1 << 31);
            size.ok_or_else(|| attribute(name, "is missing or out of range"))
        };
        let own = Self { n: size("N", 0)?, k: size("K", 0)?, block: size("block_size", 0)?, bits: size("bits", 4)? };
        match (own.bits, own.block.is_power_of_two() && own.block >= 16) {
            (4 | 8, true) => Ok(own),
            (4 | 8, false) => Err(attribute("block_size", "expected a power of two from 16 on")),
            _ => Err(attribute("bits", "expected 4 or 8")),
        }
    }

    fn blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }

    /// Returns the number at a position of bytes in which each row has `row` numbers.
    fn number(&self, bytes: &[u8], row: usize, [at, number]: [usize; 2]) -> f32 {
        let each = 8 / self.bits;
        let byte = bytes[at * row.div_ceil(each) + number / each];
        // The first of two numbers is in the lower half of the byte.
        let shifted = byte >> (number % each * self.bits);
        f32::from(if self.bits == 4 { shifted & 15 } else { shifted })
    }

    /// Returns the weights as a matrix `[k, n]`.
    fn weights(&self, bytes: &[u8], scales: &[f32], zeros: &[f32]) -> std::result::Result<Tensor, OpError> {
        let shape = [self.k, self.n];
        let mut weights = Vec::with_capacity(elements(&shape)?);
        for row in 0..self.k {
            let block = row / self.block;
            weights.extend((0..self.n).map(|column| {
                let at = column * self.blocks() + block;
                (self.number(bytes, self.block, [at, row % self.block]) - zeros[at]) * scales[at]
            }));
        }
        Tensor::f32(&shape, weights)
    }

    /// Returns the zero point of each block: numbers, packed bytes, or by default the middle of the
    /// range.
    fn zeros(&self, given: Option<&Tensor>) -> Result<Vec<f32>> {
        let (count, each) = (self.n * self.blocks(), 8 / self.bits);
        match given {
            None => Ok(vec![f32::from(1u8 << (self.bits - 1)); count]),
            Some(zeros @ Tensor::F32(_)) if zeros.to_numbers().len() == count => Ok(zeros.to_numbers()),
            Some(Tensor::U8(bytes)) if bytes.len() == self.n * self.blocks().div_ceil(each) => {
                let bytes: Vec<u8> = bytes.iter().copied().collect();
                let places = (0..self.n).flat_map(|column| (0..self.blocks()).map(move |block| [column, block]));
                Ok(places.map(|at| self.number(&bytes, self.blocks(), at)).collect())
            }
            Some(other) => {
                unfit(format!("zero points {} {:?} do not match {count} blocks", other.dtype(), other.shape()))
            }
        }
    }
}

/// Imports a product with weights that are dequantised at once; they must be constant.
fn import(call: &mut Call) -> Result<ImportValue> {
    call.check_most(6)?;
    // How runtimes may round the other factor.
    call.ignore(&["accuracy_level"]);
    if call.flag("weight_prepacked", false)? || call.optional(4).is_some() {
        return unfit("weights in another order are not supported");
    }
    let layout = BlockWeights::of(call)?;
    let (packed, scales) =
        (call.known(1)?.ok_or_else(|| missing(1))?, call.known_floats(2)?.ok_or_else(|| missing(2))?);
    let zeros = call.known(3)?;
    let blocks = layout.n.checked_mul(layout.blocks());
    let count = blocks.and_then(|blocks| blocks.checked_mul(layout.block * layout.bits / 8));
    let weights = match &*packed {
        // Nothing is allocated before the sizes in the file agree with the attributes.
        Tensor::U8(packed) if Some(packed.len()) == count && Some(scales.len()) == blocks => {
            let (bytes, zeros): (Vec<u8>, _) = (packed.iter().copied().collect(), layout.zeros(zeros.as_deref())?);
            layout.weights(&bytes, &scales, &zeros)?
        }
        other => {
            let (shape, BlockWeights { n, k, .. }) = (other.shape(), layout);
            return unfit(format!("weights of shape {shape:?} and {} scales are no {k}x{n} matrix", scales.len()));
        }
    };

    let weights = call.constant(weights);
    let x = call.operand(0)?;
    let product = call.add(MatMul, &[x, weights])?;
    call.optional(5).map_or(Ok(product), |bias| call.binary(Binary::Add, product, bias))
}
