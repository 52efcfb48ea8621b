//! Convolution.

use autotune_workloads::{Conv1d, Conv2d, Conv3d, Window, Workload};

use super::contract::{COLUMNS, contract, with_bias};
use super::prelude::*;
use super::window::{
    self, Sliding, check_bias, check_channels, check_spatial, exported, groups, kernel_of_weights, padded as with_pads,
    scaled, spatial, windows,
};

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Conv", import)];

/// Convolution of `[n, c, ..]` with weights `[o, c/groups, ..kernel]` and optional biases `[o]`,
/// over one to three spatial axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Window of each spatial axis.
    pub window: Vec<Sliding>,
    /// Number of channel groups.
    pub groups: usize,
}

impl Operator for Conv {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=3, DType::F32)?;
        Ok((output(&self.window, self.groups, &shapes)?, DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (x, weights) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
        let sums = self.sums([&x, &weights], [operands[0].shape(), operands[1].shape()], shape)?;
        with_bias(sums, operands, shape)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let bare = workload(&self.window, self.groups, [node.shape(0), node.shape(1)])?;
        Some(Anchor::new(bare, node).with_bias().with_sums(Some(1)))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Conv", [exported(&self.window), vec![int("group", self.groups)]].concat())
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(product(&operands[1].0[1..])?)
    }

    fn channel_of_sums(&self, _: usize) -> Option<usize> {
        Some(1)
    }
}

impl Conv {
    /// Returns the convolution sums without bias, in double precision, for images and weights of
    /// the given shapes; `shape` is the output's.
    pub(super) fn sums(
        &self,
        [x, weights]: [&[f32]; 2],
        [x_shape, w_shape]: [&[usize]; 2],
        shape: &[usize],
    ) -> Result<Vec<f64>, OpError> {
        let (window, groups) = (&self.window, self.groups);
        let [n, c] = [x_shape[0], x_shape[1]];
        let [o, of_group] = [shape[1] / groups, c / groups];

        // Padding is materialised, so that no window needs a bounds check.
        let around: Vec<[usize; 2]> = [[0, 0]; 2].into_iter().chain(window.iter().map(|window| window.pad)).collect();
        let room: Vec<usize> = x_shape.iter().zip(&around).map(|(extent, pad)| extent + pad[0] + pad[1]).collect();
        elements(&room)?;
        let places: Vec<_> = x_shape.iter().zip(&around).map(|(&extent, &pad)| padded(extent, pad)).collect();
        let image = if c == 0 { Vec::new() } else { picked(x, x_shape, &places, 0.0) };

        // Offsets of each output's window in the padded image, and of each tap within a window.
        let steps = strides(&room);
        let positions = offsets(&shape[2..], &scaled(window, &steps, |window| window.stride));
        let of_channel = offsets(&w_shape[2..], &scaled(window, &steps, |window| window.dilation));
        let taps: Vec<usize> = (0..of_group)
            .flat_map(|channel| of_channel.iter().map(move |tap| (channel, tap)))
            .map(|(c, tap)| c * steps[1] + tap)
            .collect();

        let size = o * taps.len();
        let mut sums = Vec::with_capacity(elements(shape)?);
        // Each image and group is a product of the group's weights and the image's windows.
        for (image_number, group) in (0..n).flat_map(|image| (0..groups).map(move |group| (image, group))) {
            let start = image_number * steps[0] + group * of_group * steps[1];
            let fill = |first: usize, columns: &mut [[f64; COLUMNS]]| {
                for (column, tap) in columns.iter_mut().zip(&taps) {
                    let at = positions[first..].iter();
                    column.iter_mut().zip(at).for_each(|(column, at)| *column = image[start + at + tap].into());
                }
            };
            let weights = &weights[group * size..(group + 1) * size];
            sums.extend(contract(weights, [o, taps.len(), positions.len()], fill));
        }
        Ok(sums)
    }
}

pub(super) fn output(window: &[Sliding], groups: usize, shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let (&[n, c, ref extents @ ..], &[o, per_group, ref kernels @ ..]) = (shapes[0], shapes[1]) else {
        return unfit(format!("shapes of images {:?} and weights {:?} do not match", shapes[0], shapes[1]));
    };
    check_spatial(window, extents, kernels)?;
    check_channels(groups, &[c, o])?;
    if per_group.checked_mul(groups) != Some(c) {
        return unfit(format!("weights of shape {:?} do not match {c} channels in {groups} group(s)", shapes[1]));
    }
    check_bias(shapes, o)?;

    let spatial = window.iter().zip(extents).map(|(window, &extent)| window.outputs(extent, false));
    [Ok(n), Ok(o)].into_iter().chain(spatial).collect()
}

pub(super) fn workload(window: &[Sliding], groups: usize, shapes: [&[usize]; 2]) -> Option<Workload> {
    let (&[n, c, ref extents @ ..], o) = (shapes[0], shapes[1][0]) else { return None };
    let windows = window.iter().zip(extents).map(|(window, &extent)| {
        let Sliding { kernel, stride, dilation, .. } = *window;
        Some(Window { extent, kernel, stride, pad: window.even()?, dilation })
    });
    let mut windows = windows.collect::<Option<Vec<Window>>>()?;

    // An image of one column has the same memory as one of one row, and tiles extend along rows.
    if let [rows, columns] = &mut windows[..]
        && [columns.extent, columns.kernel, columns.pad] == [1, 1, 0]
    {
        std::mem::swap(rows, columns);
    }

    match windows[..] {
        [window] => Workload::new(Conv1d { n, c, o, window, groups }).ok(),
        [rows, columns] => Workload::new(Conv2d {
            n,
            c,
            h: rows.extent,
            w: columns.extent,
            o,
            kh: rows.kernel,
            kw: columns.kernel,
            stride: [rows.stride, columns.stride],
            pad: [rows.pad, columns.pad],
            dilation: [rows.dilation, columns.dilation],
            groups,
        })
        .ok(),
        [a, b, d] => Workload::new(Conv3d { n, c, o, windows: [a, b, d], groups }).ok(),
        _ => None,
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    let operands = window::operands(call)?;
    convolution(call, &operands)
}

/// Adds a convolution of operands by the node's attributes.
pub(super) fn convolution(call: &mut Call, operands: &[ImportValue]) -> call::Result<ImportValue> {
    let extents = spatial(call, operands[0])?;
    let kernel = kernel_of_weights(call, operands[1], extents.len())?;
    let window = with_pads(call, windows(call, &kernel)?, &extents)?;
    let groups = groups(call)?;
    call.add(Conv { window, groups }, operands)
}
