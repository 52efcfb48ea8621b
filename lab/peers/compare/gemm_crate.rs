//! Contender with the f32 kernels of the `gemm` crate, run in this process.

use std::time::Instant;

use anyhow::{Result, ensure};
use autotune_ir::DType;
use autotune_runtime::pin_to_core;
use autotune_schedules::EXACT_TOLERANCE;
use autotune_workloads::{Epilogue, Matmul, Operands, Workload, max_rel_error, reference};
use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::contender::repeats;

/// Matrix product of row-major operands.
pub(crate) struct GemmCrate {
    matmul: Matmul,
    operands: Operands,
    output: Vec<f32>,
    /// Threads that are pinned to the first cores.
    pool: ThreadPool,
    pub(crate) max_rel_error: f64,
}

impl GemmCrate {
    /// Prepares and checks a product; `None` for workloads that the crate does not compute:
    /// convolutions, batches, transposed operands, epilogues and other types than f32.
    pub(crate) fn new(workload: &Workload, threads: usize) -> Result<Option<Self>> {
        let is_plain = |m: &&Matmul| m.b.is_one() && !m.ta && !m.tb && workload.epilogue() == Epilogue::default();
        let is_f32 = workload.dtype() == DType::F32;
        let plain = workload.sizes::<Matmul>().filter(|matmul| is_f32 && is_plain(matmul));
        let Some(&matmul) = plain else { return Ok(None) };
        let pool = ThreadPoolBuilder::new().num_threads(threads).start_handler(pin_to_core).build()?;
        let operands = Operands::random(workload.spec(), 0);
        let output = vec![f32::NAN; matmul.m * matmul.n];
        let mut made = Self { matmul, operands, output, pool, max_rel_error: 0.0 };
        made.repeat(1);
        let output = ndarray::ArrayD::from_shape_vec(workload.output_shape(), made.output.clone())?;
        made.max_rel_error = max_rel_error(&output, &reference(workload, &made.operands));
        ensure!(made.max_rel_error <= EXACT_TOLERANCE, "the gemm crate is wrong by {:.1e}", made.max_rel_error);
        Ok(Some(made))
    }

    /// Runs for at least `floor_secs` and returns the seconds per run of each repeat.
    pub(crate) fn turn(&mut self, floor_secs: f64) -> Vec<f64> {
        repeats(floor_secs, |runs| self.repeat(runs))
    }

    fn repeat(&mut self, runs: usize) -> f64 {
        let Matmul { m, n, k, .. } = self.matmul;
        let Self { operands, output, pool, .. } = self;
        let parallelism = match pool.current_num_threads() {
            1 => Parallelism::None,
            threads => Parallelism::Rayon(threads),
        };
        let (a, b) = (operands[0].as_ptr() as usize, operands[1].as_ptr() as usize);
        let gemm = get_gemm_fn();
        pool.install(|| {
            let start = Instant::now();
            for _ in 0..runs {
                let (c, a, b) = (output.as_mut_ptr(), a as *const f32, b as *const f32);
                let (row, depth) = (n as isize, k as isize);
                // Computes the transposed product from the operands as column-major matrices, the
                // order that the kernels are optimised for. SAFETY: the pointers refer to m*n, k*n
                // and m*k elements, and only the first is written.
                unsafe {
                    gemm(n, m, k, c, row, 1, false, b, row, 1, a, depth, 1, 0.0, 1.0, false, false, false, parallelism);
                }
            }
            start.elapsed().as_secs_f64()
        })
    }
}
