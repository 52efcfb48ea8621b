//! Softmax weights of a chunk of scores.

use super::PairLowering;
use super::online::{Online, others, rows};
use crate::contraction::AxisId;
use crate::gpu::{MicroKernel, TileLevel};
use crate::lower::nest::{Loops, guarded_value};
use crate::lower::{assign, at, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{
    Access, BinaryOp, BufferId, Expr, Iteration, LoopKind, Node, Role, Store, StoreMode, UnaryOp,
};
use autotune_ir::spec::{Reduction, Spec};

/// Largest number of threads per row for which the loop that combines their values is unrolled.
const MAX_UNROLLED_PARTS: usize = 16;

impl PairLowering<'_> {
    fn spec(&self) -> &Spec {
        &self.fused.first.roles.own.spec
    }

    /// Opens loops over a thread's rows; also returns the index of a row.
    fn open_rows(&mut self) -> (Loops, Vec<Affine>) {
        let fused = self.fused;
        self.first.open_sums(rows(fused))
    }

    /// Builds `largest = the least number; total = 0`.
    pub(super) fn begin_rows(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let (largest, total, least) = (online.largest, online.total, online.least);
        let (loops, row) = self.open_rows();
        let least = assign(largest, row.clone(), Expr::Const(least));
        nest(loops, vec![least, assign(total, row, Expr::Const(0.0))])
    }

    /// Builds the update for a chunk's scores: rescales earlier sums, and stores the weights in
    /// shared memory. Scores become masked scores and then weights in the first sums' registers.
    pub(super) fn weigh(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let (largest, before) = (online.largest, online.before);
        let reduction = self.spec().equations[online.softmax.largest].reduction;
        let (loops, row) = self.open_rows();
        // Earlier sums are relative to the old largest score, which rescaling needs.
        let mut nodes = nest(loops, vec![assign(before, row.clone(), load(largest, row))]);
        nodes.extend(self.mask());
        nodes.extend(self.combine(largest, reduction));
        nodes.extend(self.rescale());
        nodes.extend(self.exponentials());
        nodes
    }

    /// Builds the masking of scores and the update of the largest one:
    ///
    /// ```text
    /// first_acc = -infinity where the key does not exist or is hidden
    /// for the thread's scores
    ///   score = first_acc;  largest = max(masked(score), largest);  first_acc = masked(score)
    /// ```
    fn mask(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let Online { softmax, largest, score, .. } = online;
        let (softmax, [largest, score], acc) = (softmax.clone(), [*largest, *score], self.first.acc);
        let (read, tables) = (online.read.clone(), online.tables.clone());

        let mut nodes = self.hide();
        let (loops, index, row, point) = self.open_scores();
        let mut body = vec![assign(score, Vec::new(), load(acc, index.clone()))];
        // Masks are read into registers once, since the maximum and the masked score both use them.
        let others = others(self.spec(), &softmax);
        for (access, &register) in others.iter().zip(&read) {
            let value = self.read(access, &point, &tables);
            body.push(assign(register, Vec::new(), value));
        }

        let found = |access: &Access| match others.iter().position(|other| other == access) {
            Some(number) => load(read[number], Vec::new()),
            None => load(score, Vec::new()),
        };
        let equation = &self.spec().equations[softmax.largest];
        // A causal mask has been applied before.
        let value = softmax.later.as_ref().map_or(&equation.value, |later| &later.score);
        let value = value.replaced(&mut { found });
        let iteration = Iteration { equation: softmax.largest, point: point[..equation.axes.len()].to_vec() };
        let dst = Access { buffer: largest, index: row.into() };
        body.push(Node::Store(equation.reduction.store(dst, value.clone(), Some(iteration))));
        body.push(assign(acc, index, value));
        nodes.extend(nest(loops, body));
        nodes
    }

    /// Opens loops over a thread's scores. Also returns the index of a score, the index of its row,
    /// and its point in the axes of the first contraction.
    pub(super) fn open_scores(&mut self) -> (Loops, Vec<Affine>, Vec<Affine>, Vec<Affine>) {
        let sums = &self.first.tiling.sums;
        let (loops, index) = self.first.open_sums(sums.iter());
        let point = self.first.point(self.first.in_block(sums.iter(), &index), &Vec::new());
        let is_row = |axis: AxisId| self.fused.pair.rows.iter().any(|row| row[0] == axis);
        let row = sums.iter().zip(&index).filter(|(level, _)| is_row(level.axis)).map(|(_, place)| place.clone());
        let row = row.collect();
        (loops, index, row, point)
    }

    /// Returns an element that masking reads; zero past the end of its tensor.
    fn read(&self, access: &Access, point: &[Affine], tables: &[Option<BufferId>]) -> Expr {
        let spec = self.spec();
        let buffer = match spec.role(access.buffer) {
            Role::Operand(number) => BufferId(number as u32),
            _ => tables[access.buffer.0 as usize].unwrap_or(access.buffer),
        };
        let index: Vec<Affine> = access.index.iter().map(|index| at(index, point)).collect();
        let bounds = index.iter().cloned().zip(spec.tensor(access).shape.iter().copied());
        guarded_value(self.first.all.guards(bounds), load(buffer, index))
    }

    /// Builds the reduction of a value over the threads of a row, with the result in all of them:
    /// `parts[row, x] = value; barrier; value = parts[row, 0] + parts[row, 1] + ..`
    fn combine(&mut self, value: BufferId, reduction: Reduction) -> Vec<Node> {
        let Some(parts) = self.online.as_ref().and_then(|online| online.parts) else { return Vec::new() };
        let (threads, fused) = (self.fused.row_threads(), self.fused);
        let channel = fused.pair.channel.map_or(0, |channel| channel[0]);
        let own = super::divide(&self.first.thread_base[channel], super::step(&fused.first, channel));

        let part = |this: &mut Self, thread: Affine| {
            let (loops, row) = this.open_rows();
            let values = this.first.in_block(rows(fused), &row);
            let rows = fused.pair.rows.iter().map(|row| values[row[0]].clone());
            (loops, row, rows.chain([thread]).collect::<Vec<_>>())
        };
        let (loops, row, place) = part(self, own);
        let mut nodes = nest(loops, vec![assign(parts, place, load(value, row))]);
        nodes.push(Node::Barrier);

        let (loops, row) = self.open_rows();
        // Every thread combines all parts in the same order, so that all have bitwise equal
        // results.
        nodes.extend(nest(loops, vec![assign(value, row, Expr::Const(reduction.neutral()))]));
        let mut around = Loops::new();
        let kind = if threads <= MAX_UNROLLED_PARTS { LoopKind::Unrolled } else { LoopKind::Serial };
        let thread = self.first.all.open("x", threads, kind, &mut around);
        let (loops, row, place) = part(self, thread);
        let combined = reduction.store(Access { buffer: value, index: row.into() }, load(parts, place), None);
        around.extend(loops);
        nodes.extend(nest(around, vec![Node::Store(combined)]));
        nodes
    }

    /// Builds the rescaling of earlier sums, from the largest score before the chunk to the current
    /// one.
    fn rescale(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let [largest, before, rescale, total] = [online.largest, online.before, online.rescale, online.total];
        let (scaled, factor) = (online.scaled, online.softmax.factor_of_two());
        let (loops, row) = self.open_rows();
        let product = |scaled| assign(scaled, row.clone(), scaled_by(load(largest, row.clone()), factor));
        let mut body: Vec<Node> = scaled.map(product).into_iter().collect();
        let change = self.weight(load(before, row.clone()), &row);
        let rescaled = Expr::product(load(total, row.clone()), load(rescale, row.clone()));
        body.extend([assign(rescale, row.clone(), change), assign(total, row, rescaled)]);
        let mut nodes = nest(loops, body);
        nodes.extend(self.scale_sums(rescale));
        nodes
    }

    /// Builds `acc *= factor`, with one factor per row.
    fn scale_sums(&mut self, factor: BufferId) -> Vec<Node> {
        let fused = self.fused;
        self.with_shared_nest(|second| {
            let sums = &second.tiling.sums;
            let (loops, index) = second.open_sums(sums.iter());
            // The second contraction may list the same rows in another order.
            let place = |level: &TileLevel| {
                let axis = fused.pair.rows.iter().find(|row| row[0] == level.axis).map(|row| row[1]);
                let alike = sums.iter().position(|own| Some(own.axis) == axis && own.name == level.name);
                alike.map_or_else(Affine::default, |at| index[at].clone())
            };
            let row: Vec<Affine> = rows(fused).map(place).collect();
            let scaled = Expr::product(load(second.acc, index.clone()), load(factor, row));
            nest(loops, vec![assign(second.acc, index, scaled)])
        })
    }

    /// Builds `data_shared = exp(score - largest); total += exp(score - largest)`. For matrix
    /// instructions, the lanes of a warp hold the weights where they computed the scores.
    fn exponentials(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let Online { softmax, weight, total, .. } = online;
        let (total_of, [weight, total], acc) = (softmax.total, [*weight, *total], self.first.acc);

        let (loops, index, row, point) = self.open_scores();
        let exp = self.weight(load(acc, index.clone()), &row);
        let axes = self.spec().equations[total_of].axes.len();
        let iteration = Iteration { equation: total_of, point: point[..axes].to_vec() };
        let added = Store {
            dst: Access { buffer: total, index: row.into() },
            mode: StoreMode::Accumulate,
            value: load(weight, Vec::new()),
            iteration: Some(iteration),
        };
        let to = match (self.first.tiling.kernel, &index[..]) {
            (MicroKernel::Matrix { .. }, [i, j, h, c]) => {
                let [warp, row, pair] = self.first.lanes();
                vec![warp, i.clone(), j.clone(), h.clone(), row, pair, c.clone()]
            }
            _ => self.between(&self.first.in_block(self.first.tiling.sums.iter(), &index)),
        };
        let kept = assign(self.second.shared[0], to, load(weight, Vec::new()));
        nest(loops, vec![assign(weight, Vec::new(), exp), Node::Store(added), kept])
    }

    /// Returns the weight of a score relative to the largest one of its row: a power of 2, for
    /// which GPUs have an instruction, if matrix instructions round it to 16 bits.
    fn weight(&self, score: Expr, row: &[Affine]) -> Expr {
        let Some(online) = &self.online else { return score };
        let (factor, largest) = (online.softmax.factor_of_two(), load(online.largest, row.to_vec()));
        let below = |a, b| Expr::binary(BinaryOp::Sub, a, b);
        let exponent = match (self.first.tiling.kernel, online.scaled) {
            (MicroKernel::Registers { .. }, _) => return online.softmax.exp(score, largest),
            // One fused multiply-add per score.
            (_, Some(scaled)) => below(scaled_by(score, factor), load(scaled, row.to_vec())),
            (_, None) => scaled_by(below(score, largest), factor),
        };
        Expr::unary(UnaryOp::Exp2, exponent)
    }

    /// Builds `acc *= 1 / total`, with the total over all threads of the row.
    pub(super) fn end_rows(&mut self) -> Vec<Node> {
        let Some(online) = &self.online else { return Vec::new() };
        let (softmax, total, scale) = (online.softmax.clone(), online.total, online.scale);
        // Without a barrier after the largest score, it may still be read where totals go.
        let mut nodes: Vec<Node> = self.fused.slots.map(|_| Node::Barrier).into_iter().collect();
        nodes.extend(self.combine(total, Reduction::Sum));
        let (loops, row) = self.open_rows();
        let of_total = |_: &Access| load(total, row.clone());
        let value = self.spec().equations[softmax.scale].value.replaced(&mut { of_total });
        nodes.extend(nest(loops, vec![assign(scale, row, value)]));
        nodes.extend(self.scale_sums(scale));
        nodes
    }
}

fn scaled_by(value: Expr, factor: f32) -> Expr {
    Expr::product(value, Expr::Const(factor))
}
