//! Slow computation of what a spec says, by its definition alone.

use super::{Access, Equation, Expr, Source, Spec};
use crate::affine::Affine;

/// A tensor under evaluation.
struct Values {
    shape: Vec<usize>,
    elements: Vec<f64>,
}

impl Values {
    /// Row-major position of an index; `None` beyond the tensor.
    fn position(&self, index: &[Affine], point: &[i64]) -> Option<usize> {
        index.iter().zip(&self.shape).try_fold(0, |position, (index, &extent)| {
            let at = usize::try_from(index.eval(|axis| point[axis.0 as usize])).ok()?;
            (at < extent).then_some(position * extent + at)
        })
    }
}

impl Spec {
    /// The elements, row-major, of the tensor that the last equation defines. `operands` holds the elements of the given tensors in
    /// order. Computed in f64, without any rounding to the types of tensors: an oracle for small sizes.
    ///
    /// # Panics
    ///
    /// If operands are missing or have other lengths than their tensors.
    pub fn evaluate(&self, operands: &[&[f64]]) -> Vec<f64> {
        let mut given = operands.iter();
        let mut tensors: Vec<Values> = Vec::new();
        for tensor in &self.tensors {
            let len = tensor.shape.iter().product();
            let elements = match &tensor.source {
                Source::Given { .. } => given.next().map_or(Vec::new(), |operand| operand.to_vec()),
                Source::Known(elements) => elements.iter().map(|&x| f64::from(x)).collect(),
                Source::Computed => vec![0.0; len],
            };
            assert_eq!(elements.len(), len, "elements of '{}'", tensor.name);
            tensors.push(Values { shape: tensor.shape.clone(), elements });
        }

        for equation in &self.equations {
            add_up(equation, &mut tensors, &mut Vec::new());
        }
        let result = self.equations.last().map(|equation| equation.output.buffer.0 as usize);
        result.map_or(Vec::new(), |tensor| std::mem::take(&mut tensors[tensor].elements))
    }
}

/// Adds the value at every point that begins with `point` to its element of the output.
fn add_up(equation: &Equation, tensors: &mut [Values], point: &mut Vec<i64>) {
    if let Some(axis) = equation.axes.get(point.len()) {
        for at in 0..axis.extent as i64 {
            point.push(at);
            add_up(equation, tensors, point);
            point.pop();
        }
        return;
    }

    let Access { buffer, index } = &equation.output;
    let output = buffer.0 as usize;
    if let Some(position) = tensors[output].position(index, point) {
        let value = value(&equation.value, tensors, point);
        tensors[output].elements[position] += value;
    }
}

fn value(expr: &Expr, tensors: &[Values], point: &[i64]) -> f64 {
    let value = |expr: &Expr| value(expr, tensors, point);
    match expr {
        Expr::Const(x) => f64::from(*x),
        Expr::Load(Access { buffer, index }) => {
            let tensor = &tensors[buffer.0 as usize];
            tensor.position(index, point).map_or(0.0, |position| tensor.elements[position])
        }
        Expr::Add(of) => value(&of[0]) + value(&of[1]),
        Expr::Mul(of) => value(&of[0]) * value(&of[1]),
        Expr::Max(of) => value(&of[0]).max(value(&of[1])),
        Expr::Guarded { when, value: guarded } => {
            let holds = |index: &Affine| index.eval(|axis| point[axis.0 as usize]);
            let all = when.iter().all(|c| (0..c.extent as i64).contains(&holds(&c.index)));
            if all { value(guarded) } else { 0.0 }
        }
    }
}
