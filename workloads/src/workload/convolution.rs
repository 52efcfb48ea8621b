//! Common parts of convolutions with any number of spatial axes.

use autotune_ir::{Affine, VarId};

use super::window::{Window, WindowFields};
use super::{OperandTensor, OperatorFormula, WorkloadError, check_elements, check_positive};

/// A convolution of images `[n, c, ..]` with weights `[o, c/groups, ..]` to images `[n, o, ..]`,
/// with one to three spatial axes.
pub(super) struct Convolution<'a> {
    pub(super) op: &'static str,
    pub(super) n: usize,
    pub(super) c: usize,
    pub(super) o: usize,
    pub(super) groups: usize,
    pub(super) windows: &'a [Window],
    pub(super) fields: &'a [WindowFields],
}

/// Names of the spatial axes of images. With fewer axes, the last names are used.
const IMAGE: [&str; 3] = ["od", "oh", "ow"];
/// Names of the axes of taps.
const TAPS: [&str; 3] = ["kd", "kh", "kw"];

impl Convolution<'_> {
    /// Fails with the first invalid field. The caller checks the windows' extents.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let Self { op, n, c, o, groups, windows, fields } = *self;
        check_positive(op, &[("n", n), ("c", c), ("o", o), ("g", groups)])?;
        if !c.is_multiple_of(groups) || !o.is_multiple_of(groups) {
            let reason = format!("{groups} groups do not divide c={c} and o={o}");
            return Err(WorkloadError::Unfit { op, field: "g", reason });
        }
        windows.iter().zip(fields).try_for_each(|(window, fields)| window.check(op, *fields, "dilated kernel"))?;

        let of_windows = |of: fn(&Window) -> usize| windows.iter().map(of).collect::<Vec<_>>();
        let [padded, kernel] = [of_windows(Window::padded), of_windows(|window| window.kernel)];
        let output = [&[n, o][..], &of_windows(Window::outputs)].concat();
        let weight = [&[o, c / groups][..], &kernel].concat();
        let work = [&output[..], &weight[1..]].concat();
        check_elements(
            op,
            &[("input", &[&[n, c][..], &padded].concat()), ("weight", &weight), ("output", &output)],
            &work,
        )
    }

    /// Axes `n, g, o, od, oh, ow | c, kd, kh, kw`, with `o` and `c` counted within a group.
    pub(super) fn formula(&self) -> OperatorFormula {
        let (n, windows, dims) = (self.n, self.windows, self.windows.len());
        let (group_o, group_c) = (self.o / self.groups, self.c / self.groups);
        let names = |all: [&'static str; 3]| all.into_iter().skip(3 - dims).zip(windows);
        let image = names(IMAGE).map(|(name, window)| (name, window.outputs(), false));
        let taps = names(TAPS).map(|(name, window)| (name, window.kernel, true));
        let axes: Vec<_> = [("n", n, false), ("g", self.groups, false), ("o", group_o, false)]
            .into_iter()
            .chain(image)
            .chain([("c", group_c, true)])
            .chain(taps)
            .collect();

        // Axes by their positions.
        let var = |axis: usize| Affine::var(VarId(axis as u32));
        let (g, first_row, step) = (var(1), 3, 3 + dims);
        let (rows, taps) = (|dim: usize| var(first_row + dim), |dim: usize| var(step + 1 + dim));
        let of_dims = |lead: [Affine; 2], of: &dyn Fn(usize) -> Affine| -> Vec<Affine> {
            lead.into_iter().chain((0..dims).map(of)).collect()
        };
        let channel = g.clone() * group_o as i64 + var(2);
        let read = of_dims([var(0), g * group_c as i64 + var(step)], &|dim| windows[dim].at(&rows(dim), &taps(dim)));
        let factor = of_dims([channel.clone(), var(step)], &taps);
        let written = of_dims([var(0), channel], &rows);

        let shape =
            |lead: [usize; 2], of: fn(&Window) -> usize| lead.into_iter().chain(windows.iter().map(of)).collect();
        let input =
            OperandTensor { name: "input", shape: shape([n, self.c], |window| window.extent), is_constant: false };
        let weight = OperandTensor {
            name: "weight",
            shape: shape([self.o, group_c], |window| window.kernel),
            is_constant: true,
        };
        let output = shape([n, self.o], Window::outputs);
        OperatorFormula::product(&axes, [(input, read), (weight, factor)], (output, written), 1)
    }
}
