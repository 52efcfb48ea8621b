//! Ranking of candidates: the cost model's scores, computed from features.

use autotune_cost_model::{CostModel, ModelError, RegisterModel, RegisterUse, Sample, features};
use autotune_ir::Target;
use ndarray::{Array2, ArrayView2};

use crate::params::LearningParams;

/// Cost model, and for GPUs a model that predicts the compiler's register allocation. Registers and
/// spills are features of the cost model: training uses those that the compiler reported,
/// prediction uses expected ones for kernels that are not compiled yet.
pub(crate) struct Ranker {
    target: Target,
    registers: RegisterModel,
    model: Box<dyn CostModel>,
    params: LearningParams,
}

impl Ranker {
    pub(crate) fn new(target: Target, model: Box<dyn CostModel>, params: LearningParams) -> Self {
        Self { target, registers: RegisterModel::default(), model, params }
    }

    /// Returns the ranker with an untrained register model; the next fit replaces the cost model's
    /// training.
    pub(crate) fn renewed(self) -> Self {
        Self { registers: RegisterModel::default(), ..self }
    }

    /// Returns true if the model has learned from measurements, in this run or by pretraining.
    pub(crate) fn is_trained(&self) -> bool {
        self.model.feature_count().is_some() || self.model.is_pretrained()
    }

    /// Trains the register model on kernels for which a compiler reported registers, if there are
    /// enough.
    pub(crate) fn fit_registers(&mut self, kernels: &[(&[f32], RegisterUse)]) -> Result<(), ModelError> {
        match self.target.gpu().filter(|_| kernels.len() >= self.params.registers_first_fit) {
            Some(gpu) => self.registers.fit(kernels, gpu),
            None => Ok(()),
        }
    }

    /// Trains the model on samples, each with the register use that a compiler reported, if any.
    /// Replaces earlier training except pretraining.
    pub(crate) fn fit(&mut self, mut samples: Vec<Sample>, told: &[Option<RegisterUse>]) -> Result<(), ModelError> {
        self.tell_registers(&mut samples, told);
        self.model.fit(&samples)
    }

    /// Pretrains the model on samples; returns `false` if it does not support that.
    pub(crate) fn pretrain(
        &mut self,
        mut samples: Vec<Sample>,
        register_uses: &[Option<RegisterUse>],
    ) -> Result<bool, ModelError> {
        self.tell_registers(&mut samples, register_uses);
        self.model.pretrain(&samples)
    }

    /// Sets the register features of samples to the reported values, or else to the expected ones.
    fn tell_registers(&self, samples: &mut [Sample], told: &[Option<RegisterUse>]) {
        let rows: Vec<&[f32]> = samples.iter().map(|sample| &sample.features[..]).collect();
        let expected = self.expected(matrix(&rows).view());
        let rows = samples.iter_mut().map(|sample| &mut sample.features[..]);
        self.set(rows.zip(expected.iter().zip(told).map(|(&expected, told)| told.unwrap_or(expected))));
    }

    /// Returns the score of each row of features; `None` for a kernel that is expected to spill so
    /// much that others are faster.
    pub(crate) fn score(&self, rows: &[&[f32]]) -> Vec<Option<f32>> {
        if rows.is_empty() {
            return Vec::new();
        }
        let mut rows = matrix(rows);
        let expected = self.expected(rows.view());
        let width = rows.ncols();
        self.set(rows.as_slice_mut().unwrap_or_default().chunks_mut(width).zip(expected.iter().copied()));
        let mut scores: Vec<Option<f32>> = self.model.predict(rows.view()).into_iter().map(Some).collect();
        for (score, used) in scores.iter_mut().zip(expected) {
            *score = score.filter(|_| used.spill_bytes < self.params.max_spill_bytes);
        }
        scores
    }

    /// Returns the expected register use of each kernel; empty if the register model is not
    /// trained.
    fn expected(&self, rows: ArrayView2<f32>) -> Vec<RegisterUse> {
        self.target.gpu().and_then(|gpu| self.registers.predict(rows, gpu)).unwrap_or_default()
    }

    /// Sets the register features of rows.
    fn set<'r>(&self, rows: impl Iterator<Item = (&'r mut [f32], RegisterUse)>) {
        if let Some(gpu) = self.target.gpu() {
            rows.for_each(|(row, used)| features::set_register_use(row, gpu, used));
        }
    }
}

/// Copies rows of equal length to a matrix.
fn matrix(rows: &[&[f32]]) -> Array2<f32> {
    let width = rows.first().map_or(0, |row| row.len());
    Array2::from_shape_fn((rows.len(), width), |(row, column)| rows[row][column])
}

#[cfg(test)]
mod tests {
    use autotune_measurement::{CandidateError, Measurement, Resources};
    use autotune_schedules::{Candidate, ScheduleSpace};
    use autotune_workloads::Workload;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::learner::Learner;

    /// Returns made-up resources by the number of a kernel's accumulators: from 64 on it spills,
    /// and other kernels are faster.
    fn resources(target: &Target, candidate: &Candidate) -> Resources {
        let row = features::extract(&candidate.lower().unwrap(), target);
        let accumulators = features::names().iter().position(|name| name == "gpu.accumulators.log2_count").unwrap();
        let limit = features::register_limit(&row, target.gpu().unwrap()) as usize;
        match row[accumulators] >= 6.0 {
            true => Resources { registers: limit, spill_bytes: 2000, ..Resources::default() },
            false => Resources { registers: 40, ..Resources::default() },
        }
    }

    #[test]
    fn kernels_that_would_spill_have_no_score_once_the_compiler_has_told() {
        let target = Target::detect("cuda:sm_90", None).unwrap();
        let workload: Workload = "matmul:m=512,n=512,k=512".parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let candidates: Vec<Candidate> = (0..400).map(|_| space.sample(&mut rng)).collect();
        let (known, fresh) = candidates.split_at(250);
        let failed = || CandidateError::Build { message: String::new() };

        for told in [true, false] {
            let mut learner = Learner::with_xgb(target.clone());
            let measured = |candidate: &Candidate| {
                let taken = told.then(|| resources(&target, candidate));
                (candidate.clone(), Measurement { resources: taken, ..Measurement::of(Err(failed())) })
            };
            learner.tell(&known.iter().map(measured).collect::<Vec<_>>());
            assert!(learner.score(fresh).iter().all(Option::is_some), "nothing is learnt yet");
            learner.refit().unwrap();

            let scores = learner.score(fresh);
            let spills = |candidate: &Candidate| resources(&target, candidate).spill_bytes > 0;
            let spilling = fresh.iter().filter(|candidate| spills(candidate)).count();
            let refused =
                fresh.iter().zip(&scores).filter(|(candidate, score)| spills(candidate) && score.is_none()).count();
            let wrongly = scores.iter().filter(|score| score.is_none()).count() - refused;
            assert!(spilling > 10 && wrongly <= 2, "{spilling}, {wrongly}");
            assert!(if told { 10 * refused >= 9 * spilling } else { refused == 0 }, "{told}: {refused} of {spilling}");
        }
    }
}
