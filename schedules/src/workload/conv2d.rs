//! Two-dimensional convolution.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::spec::axis_vars;

use super::{
    Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive, write_pair,
};

/// In the registry.
pub(super) static KIND: OperatorKind = OperatorKind {
    name: "conv2d",
    fields: "n,c,h,w,o,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,g",
    example: "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
    parse,
};

/// A two-dimensional convolution (cross-correlation) with `NCHW` input, `O(C/g)KhKw` weights and `NCHW` output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv2d {
    /// Batch.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels.
    pub o: usize,
    /// Kernel height.
    pub kh: usize,
    /// Kernel width.
    pub kw: usize,
    /// Stride over height and width.
    pub stride: [usize; 2],
    /// Zero padding on both ends of height and width.
    pub pad: [usize; 2],
    /// Distance between neighbouring taps over height and width.
    pub dilation: [usize; 2],
    /// Channel groups; depthwise is `groups == c`.
    pub groups: usize,
}

impl Conv2d {
    /// Output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        let size = |extent: usize, kernel: usize, axis: usize| {
            (extent + 2 * self.pad[axis] - self.dilation[axis] * (kernel - 1) - 1) / self.stride[axis] + 1
        };
        [size(self.h, self.kh, 0), size(self.w, self.kw, 1)]
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let [kh, kw] = fields.pair("k", "kh", "kw", None)?;
    Ok(Box::new(Conv2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h: fields.required("h")?,
        w: fields.required("w")?,
        o: fields.required("o")?,
        kh,
        kw,
        stride: fields.pair("s", "sh", "sw", Some(1))?,
        pad: fields.pair("p", "ph", "pw", Some(0))?,
        dilation: fields.pair("d", "dh", "dw", Some(1))?,
        groups: fields.number("g")?.unwrap_or(1),
    }))
}

impl Operator for Conv2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "n={},c={},h={},w={},o={}", self.n, self.c, self.h, self.w, self.o)?;
        write_pair(f, ["k", "kh", "kw"], [self.kh, self.kw], None)?;
        write_pair(f, ["s", "sh", "sw"], self.stride, None)?;
        write_pair(f, ["p", "ph", "pw"], self.pad, None)?;
        write_pair(f, ["d", "dh", "dw"], self.dilation, Some(1))?;
        if self.groups != 1 { write!(f, ",g={}", self.groups) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (c, op) = (self, KIND.name);
        check_positive(
            op,
            &[
                ("n", c.n),
                ("c", c.c),
                ("h", c.h),
                ("w", c.w),
                ("o", c.o),
                ("kh", c.kh),
                ("kw", c.kw),
                ("sh", c.stride[0]),
                ("sw", c.stride[1]),
                ("dh", c.dilation[0]),
                ("dw", c.dilation[1]),
                ("g", c.groups),
            ],
        )?;
        if !c.c.is_multiple_of(c.groups) || !c.o.is_multiple_of(c.groups) {
            let reason = format!("{} groups do not divide c={} and o={}", c.groups, c.c, c.o);
            return Err(WorkloadError::Unfit { op, field: "g", reason });
        }
        let mut out = [0usize; 2];
        for (axis, (extent, kernel, k_field, p_field)) in
            [(c.h, c.kh, "kh", "ph"), (c.w, c.kw, "kw", "pw")].into_iter().enumerate()
        {
            let overflow = WorkloadError::Overflow { op, what: "padded input" };
            let padded = c.pad[axis].checked_mul(2).and_then(|p| p.checked_add(extent)).ok_or(overflow.clone())?;
            let reach = c.dilation[axis].checked_mul(kernel - 1).and_then(|r| r.checked_add(1)).ok_or(overflow)?;
            if reach > padded {
                let reason = format!("the dilated kernel spans {reach} but the padded input only {padded}");
                return Err(WorkloadError::Unfit { op, field: k_field, reason });
            }
            if c.pad[axis] > reach {
                let reason = format!("padding {} is larger than the dilated kernel ({reach})", c.pad[axis]);
                return Err(WorkloadError::Unfit { op, field: p_field, reason });
            }
            out[axis] = (padded - reach) / c.stride[axis] + 1;
        }
        let [oh, ow] = out;
        let per_group = c.c / c.groups;
        let tensors: [(_, &[_]); 3] = [
            ("input", &[c.n, c.c, c.h + 2 * c.pad[0], c.w + 2 * c.pad[1]]),
            ("weight", &[c.o, per_group, c.kh, c.kw]),
            ("output", &[c.n, c.o, oh, ow]),
        ];
        check_elements(op, &tensors, &[c.n, c.o, oh, ow, per_group, c.kh, c.kw])
    }

    /// Axes `n, g, o, oh, ow | c, kh, kw`, with `o` and `c` counted within a group.
    fn formula(&self) -> Formula {
        let (conv, [oh, ow]) = (self, self.output_hw());
        let (group_o, group_c) = (conv.o / conv.groups, conv.c / conv.groups);
        let axes = [
            ("n", conv.n, false),
            ("g", conv.groups, false),
            ("o", group_o, false),
            ("oh", oh, false),
            ("ow", ow, false),
            ("c", group_c, true),
            ("kh", conv.kh, true),
            ("kw", conv.kw, true),
        ];
        let [n, g, o, y, x, c, kh, kw] = axis_vars();
        let tap = |at: &Affine, k: &Affine, d: usize| {
            at.clone() * conv.stride[d] as i64 + k.clone() * conv.dilation[d] as i64 + -(conv.pad[d] as i64)
        };
        let channel = g.clone() * group_o as i64 + o;
        let input = Tensor { name: "input", shape: vec![conv.n, conv.c, conv.h, conv.w], is_constant: false };
        let shape = vec![conv.o, group_c, conv.kh, conv.kw];
        let weight = Tensor { name: "weight", shape, is_constant: true };
        let pixel = vec![n.clone(), g * group_c as i64 + c.clone(), tap(&y, &kh, 0), tap(&x, &kw, 1)];
        Formula::product(
            &axes,
            [(input, pixel), (weight, vec![channel.clone(), c, kh, kw])],
            (vec![conv.n, conv.o, oh, ow], vec![n, channel, y, x]),
            1,
        )
    }
}
