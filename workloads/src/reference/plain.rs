//! Evaluation of a spec by its definition, point by point.

use std::sync::{Mutex, PoisonError};

use autotune_ir::program::{Access, BinaryOp, Expr};
use autotune_ir::spec::{AxisId, Equation, Reduction, Spec};
use autotune_ir::{Affine, DType, VarId};

use super::line::{Elements, Line, Point, ReferenceTensor, at, box_of, points, position, unravel};
use super::lines::output;
use crate::operands::OutOfMemory;
use crate::parallel::for_each;

/// Evaluates every equation in order, at every point.
///
/// Returns the output in row-major order, each element converted by `of`, and the largest finite
/// magnitude of the tensor that the last equation maps.
pub(super) fn evaluate<T: Clone + Default>(
    spec: &Spec,
    mut tensors: Vec<ReferenceTensor>,
    of: fn(f64) -> T,
) -> Result<(Vec<T>, f32), OutOfMemory> {
    for equation in &spec.equations {
        make(spec, equation, &mut tensors)?;
    }
    let (output, last) = (output(spec), &spec.equations[spec.equations.len() - 1].output);
    let elements = &tensors[last.buffer.0 as usize];
    let mut values = OutOfMemory::zeros(points(&output.shape))?;
    values.iter_mut().zip(0..).for_each(|(value, at)| *value = of(elements.get(at)));

    let [.., before, _] = &spec.equations[..] else { return Ok((values, 0.0)) };
    let mapped = match &tensors[before.output.buffer.0 as usize].elements {
        Elements::Made(elements) => {
            elements.iter().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()))
        }
        Elements::Given(..) => 0.0,
    };
    Ok((values, mapped as f32))
}

/// Computes the tensor that an equation defines. Types other than f32 are rounded, as later
/// equations read them.
pub(super) fn make(spec: &Spec, equation: &Equation, tensors: &mut [ReferenceTensor]) -> Result<(), OutOfMemory> {
    let dtype = spec.tensor(&equation.output).dtype;
    let mut made = reduced(equation, tensors)?;
    made.iter_mut().filter(|_| dtype != DType::F32).for_each(|x| *x = dtype.rounded(*x));
    tensors[equation.output.buffer.0 as usize].elements = Elements::Made(made);
    Ok(())
}

/// Returns the elements of the tensor that an equation defines.
fn reduced(equation: &Equation, tensors: &[ReferenceTensor]) -> Result<Vec<f64>, OutOfMemory> {
    let line_axis = equation.axes.iter().rposition(|axis| !axis.reduce);
    let axis = line_axis.unwrap_or(equation.axes.len());
    let columns: Vec<usize> = (0..line_axis.map_or(1, |axis| equation.axes[axis].extent)).collect();
    let lines = box_of(equation, |id, own| !own.reduce && id != axis);
    let terms = box_of(equation, |_, own| own.reduce);
    let (index, shape) = (&equation.output.index, &tensors[equation.output.buffer.0 as usize].shape);
    let elements = Mutex::new(OutOfMemory::zeros(points(shape))?);
    let (reduction, neutral) = (equation.reduction, f64::from(equation.reduction.neutral()));
    let products = Products::of(equation, tensors);

    for_each(points(&lines), |line| {
        let mut results = vec![neutral; columns.len()];
        let mut first = unravel(line, &lines);
        for term in 0..points(&terms) {
            if let Some(products) = &products {
                products.add(&first, &unravel(term, &terms), axis, &mut results);
                continue;
            }
            let first: Point = first.iter().zip(unravel(term, &terms)).map(|(line, term)| line + term).collect();
            let line = Line { first: &first, axis, columns: &columns };
            let load = |access: &Access, values: &[(usize, Vec<f64>)]| {
                let tensor = &tensors[access.buffer.0 as usize];
                if values.is_empty() {
                    line.read(tensor, &access.index)
                } else {
                    line.gather(tensor, &access.index, values)
                }
            };
            let terms = results.iter_mut().zip(line.values(&equation.value, &load)).zip(&columns);
            for ((result, term), &column) in terms {
                if reduction == Reduction::Sum || reads_in_bounds(equation, tensors, &first, axis, column) {
                    *result = reduction.of(*result, term);
                }
            }
        }

        let mut elements = elements.lock().unwrap_or_else(PoisonError::into_inner);
        for result in results {
            if is_inside(index, &first, shape) {
                let element = &mut elements[position(shape, at(index, &first)) as usize];
                // Several sums may go to one element. Other reductions combine all values of an
                // element at once.
                *element = if reduction == Reduction::Sum { *element + result } else { result };
            }
            first[axis] += 1;
        }
    });
    Ok(elements.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Products of elements that are all within their tensors, with positions that are affine in the
/// axes.
struct Products<'a> {
    factors: [(&'a ReferenceTensor<'a>, Affine); 2],
}

impl<'a> Products<'a> {
    fn of(equation: &Equation, tensors: &'a [ReferenceTensor<'a>]) -> Option<Self> {
        let Expr::Binary(BinaryOp::Mul, of) = &equation.value else { return None };
        let [Expr::Load(left), Expr::Load(right)] = &**of else { return None };
        let is_inside = |access: &&Access| {
            let mut dims = access.index.iter().zip(&tensors[access.buffer.0 as usize].shape);
            dims.all(|(index, &extent)| !equation.is_beyond(index, extent))
        };
        let factor = |access: &Access| {
            let tensor = &tensors[access.buffer.0 as usize];
            let dims = access.index.iter().zip(&tensor.shape);
            (tensor, dims.fold(Affine::default(), |position, (at, &extent)| position * extent as i64 + at))
        };
        let fits = equation.reduction == Reduction::Sum && [left, right].iter().all(is_inside);
        fits.then(|| Self { factors: [factor(left), factor(right)] })
    }

    /// Adds the products of a term to the sums of a line along an axis.
    fn add(&self, line: &[i64], term: &[i64], axis: AxisId, sums: &mut [f64]) {
        let [(left, a), (right, b)] = self.factors.each_ref().map(|(tensor, position)| {
            let first = position.eval(|axis| line[axis.0 as usize] + term[axis.0 as usize]);
            (*tensor, (first, position.coefficient(VarId(axis as u32))))
        });
        for (sum, column) in sums.iter_mut().zip(0..) {
            *sum += left.get(a.0 + column * a.1) * right.get(b.0 + column * b.1);
        }
    }
}

fn is_inside(index: &[Affine], point: &[i64], shape: &[usize]) -> bool {
    at(index, point).zip(shape).all(|(at, &extent)| (0..extent as i64).contains(&at))
}

/// True if everything that is read at a point is within its tensor. The point is `first`, moved by
/// `column` along `axis`.
fn reads_in_bounds(
    equation: &Equation,
    tensors: &[ReferenceTensor],
    first: &[i64],
    axis: usize,
    column: usize,
) -> bool {
    let mut point = Point::from_slice(first);
    point[axis] += column as i64;
    let mut loads = equation.loads().into_iter();
    loads.all(|access| is_inside(&access.index, &point, &tensors[access.buffer.0 as usize].shape))
}

#[cfg(test)]
mod tests {
    use autotune_ir::program::{BufferId, Expr};
    use autotune_ir::spec::{Axis, Reduction, TensorSource, TensorSpec};
    use autotune_ir::{Affine, DType};
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::operands::Operands;
    use crate::reference::selection::LineSelection;
    use crate::reference::{Reference, max_rel_error};

    /// Adds a tensor with shuffled dimensions; returns its access.
    fn shuffled(
        rng: &mut ChaCha8Rng,
        tensors: &mut Vec<TensorSpec>,
        (name, source): (&'static str, TensorSource),
        mut dims: Vec<(Affine, usize)>,
    ) -> Access {
        dims.shuffle(rng);
        let (index, shape): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        tensors.push(TensorSpec { name: name.into(), shape, dtype: DType::F32, source });
        Access { buffer: BufferId(tensors.len() as u32 - 1), index: index.into() }
    }

    /// Returns sums of products with shuffled axes and dimensions, strides, dilation, padding and
    /// groups, and a bias.
    fn random_spec(rng: &mut ChaCha8Rng) -> Spec {
        let mut names = ["g", "n", "y", "x", "o"];
        names.shuffle(rng);
        let names: Vec<&'static str> = names.into_iter().chain(["c", "kh", "kw"]).collect();
        let is_reduced = |name: &str| ["c", "kh", "kw"].contains(&name);
        let axes: Vec<Axis> = names
            .iter()
            .map(|&name| Axis {
                name,
                extent: rng.random_range(1..=if name == "x" { 9 } else { 4 }),
                reduce: is_reduced(name),
            })
            .collect();
        let var =
            |name: &str| Affine::var(autotune_ir::VarId(names.iter().position(|&own| own == name).unwrap() as u32));
        let dim = |name: &str| (var(name), axes.iter().find(|axis| axis.name == name).unwrap().extent);
        let mut window = |row: &str, tap: &str| {
            let (stride, dilation, pad) = (rng.random_range(1..=3), rng.random_range(1..=2), rng.random_range(-1..=2));
            (var(row) * stride + var(tap) * dilation + -pad, rng.random_range(1..=12))
        };
        let windows = [window("y", "kh"), window("x", "kw")];

        let (mut tensors, given) = (Vec::new(), || TensorSource::Given { is_constant: false });
        let data = [&windows[..], &[dim("g"), dim("n"), dim("c")]].concat();
        let data = shuffled(rng, &mut tensors, ("data", given()), data);
        let weight = ["g", "o", "c", "kh", "kw"].map(dim).to_vec();
        let weight = shuffled(rng, &mut tensors, ("weight", given()), weight);
        let bias = shuffled(rng, &mut tensors, ("bias", given()), ["g", "o"].map(dim).to_vec());
        let result = ["g", "n", "y", "x", "o"].map(dim).to_vec();
        let sum = shuffled(rng, &mut tensors, ("sum", TensorSource::Computed), result);
        let shape = tensors[3].shape.clone();
        let (name, dtype, source) = ("output".into(), DType::F32, TensorSource::Computed);
        tensors.push(TensorSpec { name, shape, dtype, source });

        let output = Access { buffer: BufferId(4), index: sum.index.clone() };
        let tail = Expr::sum(Expr::Load(bias), Expr::Load(sum.clone()));
        let tail = if rng.random_bool(0.5) { Expr::max(tail, Expr::Const(0.0)) } else { tail };
        let spatial = axes.iter().filter(|axis| !axis.reduce).cloned().collect();
        let value = Expr::product(Expr::Load(data), Expr::Load(weight));
        let equations = vec![
            Equation { axes, output: sum, value, reduction: Reduction::Sum },
            Equation { axes: spatial, output, value: tail, reduction: Reduction::Sum },
        ];
        Spec { name: "random".into(), tensors, equations, main: 0 }
    }

    fn by_definition(spec: &Spec, operands: &Operands) -> ndarray::ArrayD<f32> {
        let given: Vec<_> = operands.iter().map(|operand| operand.as_standard_layout()).collect();
        let (values, _) = evaluate(spec, super::ReferenceTensor::all(spec, &given), |x| x as f32).unwrap();
        ndarray::ArrayD::from_shape_vec(output(spec).shape.clone(), values).unwrap()
    }

    #[test]
    fn sums_of_products_are_what_their_definition_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        for seed in 0..300 {
            let spec = random_spec(&mut rng);
            assert!(LineSelection::of(&spec, u64::MAX, 0).lines.vector.is_some());
            let operands = Operands::random(&spec, seed);
            let wanted = by_definition(&spec, &operands);
            let error =
                max_rel_error(Reference::with_bound(&spec, &operands, u64::MAX, 0).unwrap().exact().unwrap(), &wanted);
            assert!(error < 1e-6 || wanted.iter().all(|&x| x == 0.0), "seed {seed}: {error}\n{spec:?}");

            // Correct outputs pass for every sample.
            let bound = rng.random_range(1..=spec.flops() as u64);
            let sampled = Reference::with_bound(&spec, &operands, bound, seed).unwrap();
            let output = wanted.as_slice().unwrap();
            for part in 0..sampled.parts() {
                let difference = sampled.difference(output, autotune_ir::program::Layout::Plain, part).unwrap();
                assert!(difference <= 1e-5, "seed {seed}, bound {bound}, part {part}: {difference}\n{spec:?}");
            }
        }
    }
}
