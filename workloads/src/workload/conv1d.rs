//! The operator `conv1d`: one-dimensional convolution.

use std::fmt;

use super::convolution::Convolution;
use super::window::{Window, WindowFields};
use super::{Fields, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_positive};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "conv1d", fields: "n,c,w,o,k,s,p,d,g", example: "conv1d:c=64,w=1000,o=128,k=5,p=2", parse };

const AXES: [WindowFields; 1] = [WindowFields::ALL];

/// A one-dimensional convolution (cross-correlation) with `NCW` input, `O(C/g)K` weights and `NCW`
/// output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv1d {
    /// Number of sequences in the batch.
    pub n: usize,
    /// Number of input channels.
    pub c: usize,
    /// Number of output channels.
    pub o: usize,
    /// Window over the width.
    pub window: Window,
    /// Number of channel groups; depthwise is `groups == c`.
    pub groups: usize,
}

impl Conv1d {
    fn convolution(&self) -> Convolution<'_> {
        let Self { n, c, o, groups, window } = self;
        let windows = std::slice::from_ref(window);
        Convolution { op: KIND.name, n: *n, c: *c, o: *o, groups: *groups, windows, fields: &AXES }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let extent = fields.required("w")?;
    let [window] = Window::read(fields, [extent], WindowFields::ALL, AXES)?;
    let (n, groups) = (fields.number("n")?.unwrap_or(1), fields.number("g")?.unwrap_or(1));
    Ok(Box::new(Conv1d { n, c: fields.required("c")?, o: fields.required("o")?, window, groups }))
}

impl WorkloadOperator for Conv1d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "n={},c={},w={},o={}", self.n, self.c, self.window.extent, self.o)?;
        Window::write(f, [self.window], WindowFields::ALL, AXES)?;
        if self.groups != 1 { write!(f, ",g={}", self.groups) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        check_positive(KIND.name, &[("w", self.window.extent)])?;
        self.convolution().check()
    }

    /// Axes `n, g, o, ow | c, kw`, with `o` and `c` counted within a group.
    fn formula(&self) -> OperatorFormula {
        self.convolution().formula()
    }
}
