//! Interleaved timing of networks.

use std::borrow::BorrowMut;
use std::time::Instant;

use crate::compiled::Workspace;
use crate::device::NetworkDevice;
use crate::error::RunError;
use autotune_graph::Tensor;

/// Maximum number of warm-up runs of each network; never more than the timed runs.
pub(crate) const WARM_UP: usize = 3;

/// Returns the seconds of each run of some networks on the same inputs. Runs are interleaved, so
/// that disturbances affect all networks alike. `is_over` is checked between rounds; once it
/// returns true, timing stops with fewer runs.
pub fn time_interleaved<D: NetworkDevice, W: BorrowMut<Workspace<D>>>(
    workspaces: &mut [W],
    inputs: &[Tensor],
    runs: usize,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Vec<f64>>, RunError> {
    let numbers: Vec<Vec<f32>> = inputs.iter().map(Tensor::to_numbers).collect();
    let inputs: Vec<&[f32]> = numbers.iter().map(Vec::as_slice).collect();
    // Outputs are allocated here, so that runs are timed without it.
    let mut results: Vec<Vec<Vec<f32>>> = workspaces.iter().map(|workspace| workspace.borrow().outputs()).collect();

    let mut secs = vec![Vec::with_capacity(runs); workspaces.len()];
    // The first rounds load code and weights into caches and are not counted.
    let warm_up = WARM_UP.min(runs);
    for run in 0..runs + warm_up {
        if is_over() {
            break;
        }
        for ((workspace, results), secs) in workspaces.iter_mut().zip(&mut results).zip(&mut secs) {
            let mut outputs: Vec<&mut [f32]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            let start = Instant::now();
            workspace.borrow_mut().run(&inputs, &mut outputs)?;
            let elapsed = start.elapsed().as_secs_f64();
            secs.extend((run >= warm_up).then_some(elapsed));
        }
    }
    Ok(secs)
}
