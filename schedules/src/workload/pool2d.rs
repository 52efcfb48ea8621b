//! Two-dimensional pooling.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::spec::{Reduction, axis_vars};

use super::{
    Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive, write_pair,
};

/// In the registry.
pub(super) static KIND: OperatorKind = OperatorKind {
    name: "pool2d",
    fields: "n,c,h,w,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,ceil,kind",
    example: "pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max",
    parse,
};

const KINDS: [(&str, PoolKind); 2] = [("max", PoolKind::Max), ("avg", PoolKind::Average)];

/// What is made of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Its largest element; padding is left out.
    Max,
    /// The mean of its elements; padding counts as zeros.
    Average,
}

/// A two-dimensional pooling of `NCHW` images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pool2d {
    /// Batch.
    pub n: usize,
    /// Channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Stride over height and width.
    pub stride: [usize; 2],
    /// Padding on both ends of height and width.
    pub pad: [usize; 2],
    /// Distance between neighbouring elements of the window over height and width.
    pub dilation: [usize; 2],
    /// True if windows that begin inside, but end beyond the padding, count.
    pub ceil: bool,
    /// What is made of a window.
    pub kind: PoolKind,
}

impl Pool2d {
    /// Output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        [self.output_extent(0), self.output_extent(1)]
    }

    fn output_extent(&self, axis: usize) -> usize {
        let (extent, pad, stride) = ([self.h, self.w][axis], self.pad[axis], self.stride[axis]);
        let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        let (whole, rest) = ((extent + 2 * pad - reach) / stride, (extent + 2 * pad - reach) % stride);
        // One window more where the last does not reach the end, unless it would begin in the padding behind the image.
        let more = self.ceil && rest > 0 && (whole + 1) * stride < extent + pad;
        whole + 1 + usize::from(more)
    }

    /// True if some window has none of its elements inside.
    fn misses(&self, axis: usize) -> bool {
        let (extent, pad) = ([self.h, self.w][axis] as i64, self.pad[axis] as i64);
        let (stride, dilation) = (self.stride[axis] as i64, self.dilation[axis] as i64);
        let outputs = self.output_extent(axis) as i64;
        let has_one = |y: i64| {
            let before = (pad - y * stride).max(0) as u64;
            let first = before.div_ceil(dilation as u64) as i64;
            first < self.kernel[axis] as i64 && y * stride + first * dilation - pad < extent
        };
        // Only windows with holes that begin in the padding, or one that ends behind it, may have none.
        let outer = if dilation > 1 { (pad / stride + 1).min(outputs) } else { 0 };
        !(0..outer).chain([outputs - 1]).all(has_one)
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    Ok(Box::new(Pool2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h: fields.required("h")?,
        w: fields.required("w")?,
        kernel: fields.pair("k", "kh", "kw", None)?,
        stride: fields.pair("s", "sh", "sw", Some(1))?,
        pad: fields.pair("p", "ph", "pw", Some(0))?,
        dilation: fields.pair("d", "dh", "dw", Some(1))?,
        ceil: fields.flag("ceil")?,
        kind: fields.word("kind", &KINDS, "a pooling (max or avg)")?.unwrap_or(PoolKind::Max),
    }))
}

impl Operator for Pool2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.n != 1 {
            write!(f, "n={},", self.n)?;
        }
        write!(f, "c={},h={},w={}", self.c, self.h, self.w)?;
        write_pair(f, ["k", "kh", "kw"], self.kernel, None)?;
        write_pair(f, ["s", "sh", "sw"], self.stride, None)?;
        write_pair(f, ["p", "ph", "pw"], self.pad, None)?;
        write_pair(f, ["d", "dh", "dw"], self.dilation, Some(1))?;
        if self.ceil {
            f.write_str(",ceil")?;
        }
        let word = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(word, _)| word);
        write!(f, ",kind={word}")
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (p, op) = (self, KIND.name);
        let unfit = |field, reason| Err(WorkloadError::Unfit { op, field, reason });
        let sizes = [("n", p.n), ("c", p.c), ("h", p.h), ("w", p.w), ("kh", p.kernel[0]), ("kw", p.kernel[1])];
        let steps = [("sh", p.stride[0]), ("sw", p.stride[1]), ("dh", p.dilation[0]), ("dw", p.dilation[1])];
        check_positive(op, &[&sizes[..], &steps].concat())?;
        if p.ceil && p.kind == PoolKind::Average {
            return unfit("ceil", "a mean has whole windows only".into());
        }

        for (axis, (extent, k_field, p_field)) in [(p.h, "kh", "ph"), (p.w, "kw", "pw")].into_iter().enumerate() {
            let overflow = WorkloadError::Overflow { op, what: "padded input" };
            let padded = p.pad[axis].checked_mul(2).and_then(|pad| pad.checked_add(extent)).ok_or(overflow.clone())?;
            let reach =
                p.dilation[axis].checked_mul(p.kernel[axis] - 1).and_then(|r| r.checked_add(1)).ok_or(overflow)?;
            if reach > padded {
                return unfit(k_field, format!("the window spans {reach} but the padded input only {padded}"));
            }
            if p.pad[axis] >= reach {
                return unfit(p_field, format!("padding {} is not smaller than the window ({reach})", p.pad[axis]));
            }
        }
        let [oh, ow] = p.output_hw();
        let input = [p.n, p.c, p.h + 2 * p.pad[0], p.w + 2 * p.pad[1]];
        let output = [p.n, p.c, oh, ow];
        let work = [&output[..], &p.kernel].concat();
        check_elements(op, &[("input", &input), ("output", &output)], &work)?;
        match [(0, "ph"), (1, "pw")].into_iter().find(|(axis, _)| p.kind == PoolKind::Max && p.misses(*axis)) {
            Some((_, field)) => unfit(field, "some window has no element of the image".into()),
            None => Ok(()),
        }
    }

    /// Axes `n, c, oh, ow | kh, kw`.
    fn formula(&self) -> Formula {
        let (pool, [oh, ow]) = (self, self.output_hw());
        let [kh, kw] = pool.kernel;
        let axes = [
            ("n", pool.n, false),
            ("c", pool.c, false),
            ("oh", oh, false),
            ("ow", ow, false),
            ("kh", kh, true),
            ("kw", kw, true),
        ];
        let reduction = match pool.kind {
            PoolKind::Max => (Reduction::Max, 1.0),
            PoolKind::Average => (Reduction::Sum, 1.0 / (kh * kw) as f32),
        };
        let [n, c, y, x, i, j] = axis_vars();
        let at = |at: &Affine, k: Affine, d: usize| {
            at.clone() * pool.stride[d] as i64 + k * pool.dilation[d] as i64 + -(pool.pad[d] as i64)
        };
        let input = Tensor { name: "input", shape: vec![pool.n, pool.c, pool.h, pool.w], is_constant: false };
        let element = vec![n.clone(), c.clone(), at(&y, i, 0), at(&x, j, 1)];
        Formula::reduced(&axes, reduction, (input, element), (vec![pool.n, pool.c, oh, ow], vec![n, c, y, x]), 1)
    }
}
