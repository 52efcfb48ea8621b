//! Derivatives of expressions of matrices: what is computed is written down, and gone through
//! backward.

use ndarray::{Array2, ArrayView2, Axis};

/// A matrix that was written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Var(usize);

/// What was computed, in order.
#[derive(Default)]
pub(super) struct Tape {
    steps: Vec<Step>,
}

struct Step {
    value: Array2<f32>,
    of: Operation,
    /// Whether anything is learnt before it.
    is_learnt: bool,
}

#[derive(Clone, Copy)]
enum Operation {
    Given,
    Dot(Var, Var),
    Add(Var, Var),
    Subtract(Var, Var),
    Multiply(Var, Var),
    Sigmoid(Var),
    Tanh(Var),
    Softmax(Var),
    RowSums(Var),
}

use Operation::{Add, Dot, Given, Multiply, RowSums, Sigmoid, Softmax, Subtract, Tanh};

impl Tape {
    /// A matrix whose gradient nobody asks for.
    pub(super) fn constant(&mut self, value: Array2<f32>) -> Var {
        self.push(value, Given, false)
    }

    /// A matrix with a gradient.
    pub(super) fn weight(&mut self, value: &Array2<f32>) -> Var {
        self.push(value.clone(), Given, true)
    }

    pub(super) fn value(&self, var: Var) -> &Array2<f32> {
        &self.steps[var.0].value
    }

    pub(super) fn dot(&mut self, a: Var, b: Var) -> Var {
        self.push(self.value(a).dot(self.value(b)), Dot(a, b), self.learns(a) || self.learns(b))
    }

    /// The sum; `b` may be a single row or column, which is then added to each.
    pub(super) fn add(&mut self, a: Var, b: Var) -> Var {
        self.push(self.value(a) + self.value(b), Add(a, b), self.learns(a) || self.learns(b))
    }

    /// The difference of matrices of one shape.
    pub(super) fn subtract(&mut self, a: Var, b: Var) -> Var {
        self.push(self.value(a) - self.value(b), Subtract(a, b), self.learns(a) || self.learns(b))
    }

    /// The product of elements; `b` may be a single row or column, as in [`Tape::add`].
    pub(super) fn multiply(&mut self, a: Var, b: Var) -> Var {
        self.push(self.value(a) * self.value(b), Multiply(a, b), self.learns(a) || self.learns(b))
    }

    pub(super) fn sigmoid(&mut self, a: Var) -> Var {
        self.push(self.value(a).mapv(|x| 1.0 / (1.0 + (-x).exp())), Sigmoid(a), self.learns(a))
    }

    pub(super) fn tanh(&mut self, a: Var) -> Var {
        self.push(self.value(a).mapv(f32::tanh), Tanh(a), self.learns(a))
    }

    /// Shares of each row that follow the exponentials of its elements.
    pub(super) fn softmax(&mut self, a: Var) -> Var {
        let mut value = self.value(a).clone();
        for mut row in value.rows_mut() {
            let greatest = row.fold(f32::NEG_INFINITY, |greatest, &x| greatest.max(x));
            row.mapv_inplace(|x| (x - greatest).exp());
            let sum = row.sum();
            row.mapv_inplace(|x| x / sum);
        }
        self.push(value, Softmax(a), self.learns(a))
    }

    /// A column.
    pub(super) fn row_sums(&mut self, a: Var) -> Var {
        self.push(self.value(a).sum_axis(Axis(1)).insert_axis(Axis(1)), RowSums(a), self.learns(a))
    }

    fn learns(&self, var: Var) -> bool {
        self.steps[var.0].is_learnt
    }

    fn push(&mut self, value: Array2<f32>, of: Operation, is_learnt: bool) -> Var {
        self.steps.push(Step { value, of, is_learnt });
        Var(self.steps.len() - 1)
    }

    /// The gradients of some weights, if that of `last` is known.
    pub(super) fn gradients(&self, last: Var, of_last: Array2<f32>, weights: &[Var]) -> Vec<Array2<f32>> {
        let mut gradients: Vec<Option<Array2<f32>>> = vec![None; self.steps.len()];
        gradients[last.0] = Some(of_last);
        for at in (0..=last.0).rev() {
            if let (true, Some(of_it)) = (self.steps[at].is_learnt, gradients[at].take()) {
                self.pass_on(at, &of_it, &mut gradients);
                gradients[at] = Some(of_it);
            }
        }
        let gradient = |var: &Var| gradients[var.0].take().unwrap_or_else(|| Array2::zeros(self.value(*var).dim()));
        weights.iter().map(gradient).collect()
    }

    /// Adds what the gradient of a step gives to those of what it was computed from.
    fn pass_on(&self, at: usize, of_it: &Array2<f32>, gradients: &mut [Option<Array2<f32>>]) {
        let Step { value, of, .. } = &self.steps[at];
        let mut give = |to: Var, more: &dyn Fn() -> Array2<f32>| {
            if self.learns(to) {
                let more = summed(more(), self.value(to).view());
                match &mut gradients[to.0] {
                    Some(known) => *known += &more,
                    unknown => *unknown = Some(more),
                }
            }
        };

        match *of {
            Given => {}
            Dot(a, b) => {
                give(a, &|| of_it.dot(&self.value(b).t()));
                give(b, &|| self.value(a).t().dot(of_it));
            }
            Add(a, b) => {
                give(a, &|| of_it.clone());
                give(b, &|| of_it.clone());
            }
            Subtract(a, b) => {
                give(a, &|| of_it.clone());
                give(b, &|| -of_it);
            }
            Multiply(a, b) => {
                give(a, &|| of_it * self.value(b));
                give(b, &|| of_it * self.value(a));
            }
            Sigmoid(a) => give(a, &|| of_it * &value.mapv(|y| y * (1.0 - y))),
            Tanh(a) => give(a, &|| of_it * &value.mapv(|y| 1.0 - y * y)),
            Softmax(a) => give(a, &|| {
                let weighed = of_it * value;
                let of_rows = weighed.sum_axis(Axis(1)).insert_axis(Axis(1));
                weighed - value * &of_rows
            }),
            RowSums(a) => give(a, &|| Array2::zeros(self.value(a).dim()) + of_it),
        }
    }
}

/// The gradient of a matrix that was repeated along its axes of length 1.
fn summed(mut gradient: Array2<f32>, like: ArrayView2<f32>) -> Array2<f32> {
    for axis in [Axis(0), Axis(1)] {
        if like.len_of(axis) == 1 && gradient.len_of(axis) > 1 {
            gradient = gradient.sum_axis(axis).insert_axis(axis);
        }
    }
    gradient
}
