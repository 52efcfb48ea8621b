//! Prediction of registers and spills of GPU kernels, trained on compiled kernels.

use autotune_ir::GpuTarget;
use ndarray::ArrayView2;

use crate::features::{self, RegisterUse};
use crate::model::{CostModel, ModelError};
use crate::sample::Sample;
use crate::xgb::{Objective, XgbModel, XgbParams};

/// Bytes of traffic per spilled register: one store and one load.
const SPILL_BYTES: f32 = 8.0;

/// Predicts registers and spills of kernels that are not compiled yet, from their features.
///
/// A compiler gives a thread the registers that it demands, up to the device's limit for the block,
/// and spills the rest. Gradient-boosted trees learn the demand, as the difference from the
/// estimate among the features. Spills are thus predicted from kernels near the limit, long before
/// many have spilled.
#[derive(Clone, Debug)]
pub struct RegisterModel(XgbModel);

impl Default for RegisterModel {
    fn default() -> Self {
        Self(XgbModel::new(XgbParams { objective: Objective::SquaredError, ..XgbParams::default() }))
    }
}

impl RegisterModel {
    /// Replaces what earlier fits learned by what these kernels of one device teach. Each kernel
    /// has a row of [`features::extract`] and its compiler's report. After an error the model is
    /// unchanged.
    pub fn fit(&mut self, kernels: &[(&[f32], RegisterUse)], gpu: &GpuTarget) -> Result<(), ModelError> {
        let sample = |&(row, used): &(&[f32], RegisterUse)| {
            // Another stage with smaller blocks may take more registers without spilling.
            let registers = used.registers.min(features::register_limit(row, gpu));
            let demand = registers + used.spill_bytes / SPILL_BYTES;
            Sample { features: row.to_vec(), score: demand - features::estimated_registers(row), group: 0 }
        };
        self.0.fit(&kernels.iter().map(sample).collect::<Vec<_>>())
    }

    /// Predicts the registers and spills of each kernel from its row of [`features::extract`];
    /// `None` before the first fit.
    ///
    /// # Panics
    ///
    /// As [`CostModel::predict`].
    pub fn predict(&self, features: ArrayView2<f32>, gpu: &GpuTarget) -> Option<Vec<RegisterUse>> {
        self.0.feature_count()?;
        let used = |(row, excess): (ndarray::ArrayView1<f32>, f32)| {
            let row = row.to_vec();
            let (demand, limit) = (features::estimated_registers(&row) + excess, features::register_limit(&row, gpu));
            RegisterUse { registers: demand.clamp(1.0, limit), spill_bytes: SPILL_BYTES * (demand - limit).max(0.0) }
        };
        Some(features.rows().into_iter().zip(self.0.predict(features)).map(used).collect())
    }
}

#[cfg(test)]
mod tests {
    use autotune_ir::Target;
    use autotune_schedules::{ScheduleSpace, lower};
    use autotune_workloads::Workload;
    use ndarray::Array2;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Reports three quarters of the estimated registers, and 100 more for prefetched loads.
    fn compile(row: &[f32], gpu: &GpuTarget) -> RegisterUse {
        let prefetched = features::names().iter().position(|name| name == "gpu.prefetched.flag").unwrap();
        let demand = (0.75 * features::estimated_registers(row) + 100.0 * row[prefetched]).round();
        let limit = features::register_limit(row, gpu);
        RegisterUse { registers: demand.min(limit), spill_bytes: SPILL_BYTES * (demand - limit).max(0.0) }
    }

    #[test]
    fn spills_are_foreseen_from_few_kernels() {
        let target = Target::detect("cuda:sm_90", None).unwrap();
        let gpu = target.gpu().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut rows = Vec::new();
        for text in ["matmul:m=512,n=512,k=512", "conv2d:c=64,h=28,w=28,o=128,k=3,p=1,exact"] {
            let workload: Workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            for _ in 0..300 {
                let config = space.sample(&mut rng);
                rows.push(features::extract(&lower(&workload, &target, &config).unwrap(), &target));
            }
        }

        let matrix = Array2::from_shape_fn((rows.len(), rows[0].len()), |(row, column)| rows[row][column]);
        let told: Vec<RegisterUse> = rows.iter().map(|row| compile(row, gpu)).collect();
        let known = |i: usize| i.is_multiple_of(3);
        let kernels: Vec<(&[f32], RegisterUse)> =
            (0..rows.len()).filter(|&i| known(i)).map(|i| (&rows[i][..], told[i])).collect();
        let mut model = RegisterModel::default();
        assert!(model.predict(matrix.view(), gpu).is_none());
        model.fit(&kernels, gpu).unwrap();

        let expected = model.predict(matrix.view(), gpu).unwrap();
        let rest = || (0..rows.len()).filter(|&i| !known(i));
        let mean = |error: &dyn Fn(usize) -> f32| rest().map(error).sum::<f32>() / rest().count() as f32;
        let learnt = mean(&|i| (expected[i].registers - told[i].registers).abs());
        let estimated = mean(&|i| (features::estimated_registers(&rows[i]) - told[i].registers).abs());
        assert!(learnt < 4.0 && learnt < 0.3 * estimated, "{learnt}, {estimated}");

        let heavy = |used: RegisterUse, bytes: f32| used.spill_bytes > bytes;
        let spilling = rest().filter(|&i| heavy(told[i], 200.0)).count();
        let found = rest().filter(|&i| heavy(told[i], 200.0) && heavy(expected[i], 100.0)).count();
        let wrong = rest().filter(|&i| !heavy(told[i], 0.0) && heavy(expected[i], 100.0)).count();
        assert!(
            spilling > 10 && 10 * found >= 9 * spilling && 50 * wrong <= rest().count(),
            "{spilling} {found} {wrong}"
        );
    }
}
