//! A workload with operands and the right answer.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use autotune_schedules::program::{Layout, Role};
use autotune_schedules::tensor::{LayoutError, to_layout};
use autotune_schedules::{Operands, Workload, reference};
use ndarray::ArrayD;

use crate::buffers::NoMemory;
use crate::fixed::Fixed;
use crate::measurement::CandidateError;
use crate::team::Team;

/// The operands' seed: every measurement of a workload uses the same.
const SEED: u64 = 0x0a07_07e5;

/// Random operands of a workload, none of which lets a wrong kernel pass, and the output for them.
pub(crate) struct Problem {
    operands: Operands,
    reference: ArrayD<f32>,
    /// Largest magnitude in the reference.
    largest: f32,
    /// Tensors as they lie in memory, made when first asked for: most candidates of a workload want the same.
    arranged: HashMap<(Role, Layout), Arc<[f32]>>,
    /// The same in the place in which kernels on the CPU find them.
    fixed: HashMap<(Role, Layout), Arc<Fixed>>,
}

impl Problem {
    /// Draws the operands and computes the reference, on every core.
    pub(crate) fn new(workload: &Workload) -> Self {
        let operands = Operands::random(workload, SEED);
        let reference = reference(workload, &operands);
        Self::of(operands, reference)
    }

    fn of(operands: Operands, reference: ArrayD<f32>) -> Self {
        let largest = reference.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        let (arranged, fixed) = (HashMap::new(), HashMap::new());
        Self { operands, reference, largest, arranged, fixed }
    }

    /// Largest magnitude in the reference.
    pub(crate) fn largest(&self) -> f32 {
        self.largest
    }

    /// Bytes of the tensors, in every layout that was asked for.
    pub(crate) fn bytes(&self) -> usize {
        let Operands { input, weight, bias, residual } = &self.operands;
        let tensors = [Some(input), Some(weight), bias.as_ref(), residual.as_ref(), Some(&self.reference)];
        let plain: usize = tensors.into_iter().flatten().map(|tensor| tensor.len()).sum();
        let arranged: usize = self.arranged.values().map(|elements| elements.len()).sum();
        let fixed: usize = self.fixed.values().map(|fixed| fixed.bytes()).sum();
        4 * (plain + arranged) + fixed
    }

    /// The elements of the operand of a role, or of the reference for the output, in the order in which `layout` puts
    /// them into memory; `None` if the workload has none.
    pub(crate) fn arranged(&mut self, role: Role, layout: Layout) -> Result<Option<Arc<[f32]>>, LayoutError> {
        if let Some(known) = self.arranged.get(&(role, layout)) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(tensor) = self.tensor(role) else { return Ok(None) };
        let elements: Arc<[f32]> = to_layout(tensor, layout)?.into();
        self.arranged.insert((role, layout), Arc::clone(&elements));
        Ok(Some(elements))
    }

    /// The same in memory that kernels get.
    pub(crate) fn fixed(
        &mut self,
        role: Role,
        layout: Layout,
        team: &mut Team,
    ) -> Result<Option<Arc<Fixed>>, CandidateError> {
        if let Some(known) = self.fixed.get(&(role, layout)) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(tensor) = self.tensor(role) else { return Ok(None) };
        let elements = to_layout(tensor, layout).map_err(|e| misfit(role, &e.to_string()))?;
        let fixed = Arc::new(Fixed::of(&elements, team).map_err(NoMemory::candidate_error)?);
        self.fixed.insert((role, layout), Arc::clone(&fixed));
        Ok(Some(fixed))
    }

    /// The operand of a role, or the reference for the output.
    fn tensor(&self, role: Role) -> Option<&ArrayD<f32>> {
        match role {
            Role::Input => Some(&self.operands.input),
            Role::Weight => Some(&self.operands.weight),
            Role::Bias => self.operands.bias.as_ref(),
            Role::Residual => self.operands.residual.as_ref(),
            Role::Output => Some(&self.reference),
            Role::Packed | Role::Accumulator => None,
        }
    }

    /// Writes the tensors, for a process on this machine.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let Operands { input, weight, bias, residual } = &self.operands;
        let tensors = [Some(input), Some(weight), bias.as_ref(), residual.as_ref(), Some(&self.reference)];
        for value in tensors.into_iter().flatten().flat_map(|tensor| tensor.iter()) {
            file.write_all(&value.to_ne_bytes())?;
        }
        file.flush()
    }

    /// Reads what [`Problem::write`] wrote for `workload`.
    pub(crate) fn read(path: &Path, workload: &Workload) -> io::Result<Self> {
        let mut file = BufReader::new(File::open(path)?);
        let mut tensor = |shape: Vec<usize>| read_tensor(&mut file, shape);
        let input = tensor(workload.input_shape())?;
        let weight = tensor(workload.weight_shape())?;
        let bias = workload.epilogue.bias.then(|| tensor(vec![workload.bias_len()])).transpose()?;
        let residual = workload.epilogue.residual.then(|| tensor(workload.output_shape())).transpose()?;
        let reference = tensor(workload.output_shape())?;
        let operands = Operands { input, weight, bias, residual };
        match file.read(&mut [0])? {
            0 => Ok(Self::of(operands, reference)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long")),
        }
    }
}

/// A plan that is not one of the workload: what lowering made cannot be run.
pub(crate) fn misfit(role: Role, what: &str) -> CandidateError {
    CandidateError::Lower { message: format!("the plan's {role:?} buffer: {what}").to_lowercase() }
}

fn read_tensor(file: &mut impl Read, shape: Vec<usize>) -> io::Result<ArrayD<f32>> {
    let mut bytes = vec![0u8; 4 * shape.iter().product::<usize>()];
    file.read_exact(&mut bytes)?;
    let values = bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    ArrayD::from_shape_vec(shape, values).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["conv2d:c=4,h=5,w=6,o=8,k=3,p=1,bias,add,act=relu", "matmul:b=2,m=3,n=4,k=5"] {
            let workload: Workload = text.parse().unwrap();
            let problem = Problem::new(&workload);
            let path = dir.path().join("problem");
            problem.write(&path).unwrap();
            let read = Problem::read(&path, &workload).unwrap();
            assert_eq!((read.operands, read.reference), (problem.operands, problem.reference));
            let smaller: Workload = "matmul:m=2,n=2,k=2".parse().unwrap();
            let larger: Workload = "matmul:m=64,n=64,k=64".parse().unwrap();
            assert!(Problem::read(&path, &smaller).is_err());
            assert!(Problem::read(&path, &larger).is_err());
        }
    }

    #[test]
    fn arranged_tensors_are_those_of_the_layout_asked_for() {
        let workload: Workload = "conv2d:c=4,h=3,w=2,o=8,k=1,add".parse().unwrap();
        let mut problem = Problem::new(&workload);
        let (input, reference) = (problem.operands.input.clone(), problem.reference.clone());
        for layout in [Layout::Plain, Layout::ChannelBlocked(2), Layout::ChannelBlocked(4), Layout::Plain] {
            for (role, tensor) in [(Role::Input, &input), (Role::Output, &reference)] {
                let arranged = problem.arranged(role, layout).unwrap().unwrap();
                assert_eq!(*arranged, *to_layout(tensor, layout).unwrap());
            }
        }
        assert_eq!(problem.arranged(Role::Bias, Layout::Plain).unwrap(), None);
        assert!(problem.arranged(Role::Residual, Layout::Plain).unwrap().is_some());
        assert!(problem.arranged(Role::Input, Layout::ChannelBlocked(3)).is_err());
    }
}
