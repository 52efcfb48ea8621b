//! Times of the steps of a network.

use std::sync::Arc;

use super::Workspace;
use crate::device::NetworkOps;
use crate::error::RunError;
use crate::plan::{Action, ActionKind};
use crate::quantile::{QUIET, quantile};

/// Measured time of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Name of the first node that the step computes.
    pub name: String,
    /// Index of the kernel in [`schedules`](super::Compiled::schedules); `None` for copies and
    /// interpreted nodes.
    pub kernel: Option<usize>,
    /// True if the step only converts a tensor's layout.
    pub is_conversion: bool,
    /// Seconds within the network, the low quantile over runs.
    pub run_secs: f64,
    /// Seconds when the step is run twice in a row, for the second run: its data is in the caches
    /// as far as it fits.
    pub repeat_secs: f64,
}

impl<D: NetworkOps> Workspace<D> {
    /// Measures every step, alternately within the network and repeated, in `runs` runs on inputs
    /// of ones. Two further runs serve as warm-up.
    pub fn profile(&mut self, runs: usize) -> Result<Vec<StepTime>, RunError> {
        let mut secs = vec![[Vec::with_capacity(runs), Vec::with_capacity(runs)]; self.bound.calls.len()];
        for run in 0..runs + 2 {
            for (place, is_repeated) in [false, true].into_iter().enumerate() {
                for (secs, elapsed) in secs.iter_mut().zip(self.step_secs(is_repeated)?) {
                    // The first two runs are warm-up.
                    secs[place].extend((run >= 2).then_some(elapsed));
                }
            }
        }

        let step = |(action, [within, behind]): (&Action, [Vec<f64>; 2])| {
            let kernel = match action.work {
                ActionKind::Kernel(kernel) => Some(kernel),
                _ => None,
            };
            let [run_secs, repeat_secs] = [within, behind].map(|secs| quantile(secs, QUIET));
            let (name, is_conversion) = (action.name.clone(), action.is_conversion);
            StepTime { name, kernel, is_conversion, run_secs, repeat_secs }
        };
        Ok(self.bound.network.plan.actions.iter().zip(secs).map(step).collect())
    }

    /// Measures every step in one run on inputs of ones. If `is_repeated`, each step runs twice in
    /// a row and the second time is measured.
    pub(crate) fn step_secs(&mut self, is_repeated: bool) -> Result<Vec<f64>, RunError> {
        self.fill_inputs()?;
        let time = |number: usize| {
            if is_repeated {
                self.start(number..number + 1)?;
            }
            Ok(self.device.time(&mut || self.device.start_all(&self.bound.calls[number..number + 1]))?)
        };
        let secs = (0..self.bound.calls.len()).map(time).collect();
        self.check_failure()?;
        secs
    }
    /// Writes ones to the inputs. Later steps of the last run may have used their memory for
    /// tensors of another type, whose bits may be denormal f32 numbers, which slow down kernels.
    fn fill_inputs(&mut self) -> Result<(), RunError> {
        let network = Arc::clone(&self.bound.network);
        for (&span, &input) in network.plan.inputs.iter().zip(network.graph.inputs()) {
            let elements = network.graph.node(input).shape.iter().product();
            self.write(span, &vec![1.0; elements])?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::Target;

    use crate::{Builder, Compiled, Seeded};

    /// Every pass computes the outputs for ones, although the input's memory is used again.
    #[test]
    fn steps_are_measured_on_ones() {
        let net = Builder::new("powers", Seeded { seed: 1 });
        let x = net.input("x", &[32, 32]);
        let square = x.matmul(x);
        let fourth = square.matmul(square);
        net.output("y", fourth.matmul(fourth));
        let network = Compiled::new(&net.finish().unwrap(), None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
        let mut workspace = network.workspace().unwrap();

        let [mut wanted, mut found] = [0; 2].map(|_| vec![0.0; 32 * 32]);
        workspace.run(&[&[1.0; 32 * 32]], &mut [&mut wanted]).unwrap();
        workspace.run(&[&[2.0; 32 * 32]], &mut [&mut found]).unwrap();
        for _ in 0..2 {
            workspace.step_secs(false).unwrap();
            workspace.read(network.plan.outputs[0], &mut found).unwrap();
            assert_eq!(found, wanted);
        }
    }
}
