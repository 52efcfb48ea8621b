//! Runs that tell when each step began and ended.

use std::sync::Arc;
use std::time::Instant;

use super::Workspace;
use super::in_place::BoundCalls;
use crate::error::RunError;
use crate::plan::ActionKind;

/// Time that a step took in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// Name of the first node that the step computes.
    pub name: String,
    /// Workload of the step's kernel as text; `None` for copies and interpreted nodes.
    pub workload: Option<String>,
    /// True if the step only converts a tensor's layout.
    pub is_conversion: bool,
    /// Moment at which the step began.
    pub start: Instant,
    /// Moment at which all threads had ended the step.
    pub end: Instant,
}

impl Workspace {
    /// Runs the network as [`run`](Self::run) does, and tells when each step ran. Threads begin
    /// each step together, which costs some microseconds for each.
    pub fn run_spans(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<Vec<StepSpan>, RunError> {
        let network = Arc::clone(&self.bound.network);
        network.check_sizes(inputs, outputs)?;
        self.copy_inputs(&network.plan, inputs)?;
        let mut spans = Vec::with_capacity(network.plan.actions.len());
        {
            let mut bound = BoundCalls::new(&mut self.bound.calls, &mut self.bound.reads);
            // SAFETY: the inputs have the right sizes and outlive the calls, which end below.
            unsafe { bound.bind(inputs) };
            for (action, call) in network.plan.actions.iter().zip(bound.calls()) {
                let start = Instant::now();
                self.device.start_all(std::slice::from_ref(call))?;
                let end = Instant::now();
                let workload = match action.work {
                    ActionKind::Kernel(kernel) => Some(network.plan.kernels[kernel].workload().to_string()),
                    _ => None,
                };
                let (name, is_conversion) = (action.name.clone(), action.is_conversion);
                spans.push(StepSpan { name, workload, is_conversion, start, end });
            }
        }

        self.check_failure()?;
        self.read_all(&network.plan, outputs)?;
        Ok(spans)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::Target;

    use crate::{Builder, Compiled, Seeded};

    /// Steps run one after the other, on large inputs, which are read in place, and on small ones.
    #[test]
    fn spans_are_in_order_and_outputs_those_of_other_runs() {
        for rows in [1, 40] {
            let net = Builder::new("chain", Seeded { seed: 1 });
            let x = net.input("x", &[rows, 32]);
            net.output("y", x.linear("first", 64).relu().linear("second", 8).softmax());
            let graph = net.finish().unwrap();
            let network = Compiled::new(&graph, None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
            let mut workspace = network.workspace().unwrap();

            let x: Vec<f32> = (0..rows * 32).map(|number| (number % 7) as f32 - 3.0).collect();
            let [mut wanted, mut found] = [0; 2].map(|_| vec![0.0; rows * 8]);
            workspace.run(&[&x], &mut [&mut wanted]).unwrap();
            let spans = workspace.run_spans(&[&x], &mut [&mut found]).unwrap();
            assert_eq!(found, wanted);
            assert_eq!(spans.len(), network.plan.actions.len());
            assert!(spans.iter().all(|span| span.start <= span.end));
            assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!(spans.iter().any(|span| span.workload.as_ref().is_some_and(|text| text.starts_with("matmul:"))));

            assert!(workspace.run_spans(&[&x[1..]], &mut [&mut found]).is_err());
            workspace.run(&[&x], &mut [&mut found]).unwrap();
            assert_eq!(found, wanted);
        }
    }
}
