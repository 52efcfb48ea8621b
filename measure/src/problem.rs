//! A workload with operands and the right answer.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use autotune_schedules::{Operands, Workload, reference};
use ndarray::ArrayD;

/// The operands' seed: every measurement of a workload uses the same.
const SEED: u64 = 0x0a07_07e5;

/// Random operands of a workload, none of which lets a wrong kernel pass, and the output for them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) workload: Workload,
    pub(crate) operands: Operands,
    pub(crate) reference: ArrayD<f32>,
}

impl Problem {
    /// Draws the operands and computes the reference, on every core.
    pub(crate) fn new(workload: &Workload) -> Self {
        let operands = Operands::random(workload, SEED);
        let reference = reference(workload, &operands);
        Self { workload: *workload, operands, reference }
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
            0 => Ok(Self { workload: *workload, operands, reference }),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long")),
        }
    }
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
            assert_eq!(Problem::read(&path, &workload).unwrap(), problem);
            let smaller: Workload = "matmul:m=2,n=2,k=2".parse().unwrap();
            let larger: Workload = "matmul:m=64,n=64,k=64".parse().unwrap();
            assert!(Problem::read(&path, &smaller).is_err());
            assert!(Problem::read(&path, &larger).is_err());
        }
    }
}
