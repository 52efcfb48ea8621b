//! Small random graphs with all operators and moderate numbers.

use autotune_graph::operators::{
    Binary, Cast, Concat, Conv, ConvTranspose, Expand, Gather, GroupNorm, LayerNorm, LocalResponseNorm, Map, MatMul,
    Not, Pad, Pool, Prelu, Range, Reduce, Reshape, Resize, Slice, Sliding, Softmax, Transpose, Where,
};
use autotune_graph::{DType, Graph, NodeId, Op, Tensor};
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Coordinates, Function, PadMode, PoolKind, ReduceOp, Rounding, Sampling};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::any;
use super::graphs::{Net, brought};

/// Maximum number of elements of a tensor, and the largest permitted number.
const MOST_ELEMENTS: usize = 2000;
const LARGEST: f32 = 1e3;

struct Maker<R> {
    net: Net<R>,
    /// Value of every node for the inputs of the seed.
    tensors: Vec<Tensor>,
    /// Float nodes that are not constants.
    values: Vec<NodeId>,
}

/// Creates a graph of up to `most` nodes. [`super::graphs::assert_same`] runs it on the inputs of
/// the same seed, with which the graph was created.
pub(crate) fn random_graph(seed: u64, most: usize, rng: &mut impl Rng) -> Graph {
    let mut net = Net::drawn(rng);
    for shape in [&[2, 4, 5, 6][..], &[1, 6, 4, 4], &[2, 3, 8], &[3, 6]] {
        net.input(shape);
    }
    let tensors = brought(&net.graph, &mut super::rng(seed));
    let values = net.graph.inputs().to_vec();
    let mut maker = Maker { net, tensors, values };
    let nodes = any(&mut maker.net.rng, maker.net.graph.nodes().len() + 1..=most);
    while maker.net.graph.nodes().len() < nodes {
        maker.step();
    }

    let uses = maker.net.graph.uses();
    for id in maker.values.clone() {
        // Unread nodes become outputs, and a few others.
        if uses[id.0 as usize] == 0 || any(&mut maker.net.rng, 0..=15) == 0 {
            maker.net.output(id);
        }
    }
    maker.net.graph
}

impl<R: Rng> Maker<R> {
    fn one_of(&mut self, range: usize) -> usize {
        any(&mut self.net.rng, 0..=range - 1)
    }

    /// Returns a random node, mostly a recent one.
    fn value(&mut self) -> NodeId {
        let last = if self.one_of(4) > 0 { self.values.len().min(4) } else { self.values.len() };
        let back = self.one_of(last);
        self.values[self.values.len() - 1 - back]
    }

    fn shape(&self, id: NodeId) -> Vec<usize> {
        self.net.graph.node(id).shape.clone()
    }

    fn known(&mut self, id: NodeId) -> NodeId {
        while self.tensors.len() < self.net.graph.nodes().len() {
            let node = self.net.graph.node(NodeId(self.tensors.len() as u32));
            let operands: Vec<&Tensor> = node.operands.iter().map(|id| &self.tensors[id.0 as usize]).collect();
            let tensor = node.op.evaluate(&operands).unwrap();
            self.tensors.push(tensor);
        }
        id
    }

    /// Adds a node, if it is valid and its numbers are moderate.
    fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> Option<NodeId> {
        let op = op.into();
        operands.iter().for_each(|&id| {
            self.known(id);
        });
        let tensors: Vec<&Tensor> = operands.iter().map(|id| &self.tensors[id.0 as usize]).collect();
        let known: Vec<_> = tensors.iter().map(|tensor| (tensor.shape(), tensor.dtype())).collect();
        let (shape, _) = op.infer(&known).ok()?;
        if shape.iter().product::<usize>() > MOST_ELEMENTS || shape.contains(&0) {
            return None;
        }
        let tensor = op.evaluate(&tensors).ok()?;
        if tensor.as_f32().is_some_and(|all| !all.iter().all(|x| x.abs() < LARGEST)) {
            return None;
        }
        let is_value = tensor.dtype() == DType::F32;
        let id = self.net.add(op, operands);
        self.tensors.push(tensor);
        if is_value {
            self.values.push(id);
        }
        Some(id)
    }

    fn random(&mut self, shape: &[usize]) -> NodeId {
        let id = self.net.random(shape);
        self.known(id)
    }

    fn scalar(&mut self) -> NodeId {
        let all = [0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 6.0, 1.0 / 6.0, 0.7, -0.3];
        let value = *all.choose(&mut self.net.rng).unwrap();
        let id = self.net.scalar(value);
        self.known(id)
    }

    /// Adds a constant: one number for each channel, for each element of a row, for each element,
    /// or a single one.
    fn constant(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        match self.one_of(5) {
            0 if shape.len() > 1 => {
                let rest = vec![1; shape.len() - 2];
                self.random(&[&shape[1..2], &rest].concat())
            }
            1 if shape.len() > 1 => {
                let rest = vec![1; shape.len() - 2];
                self.random(&[&[1], &shape[1..2], &rest[..]].concat())
            }
            2 => self.random(&shape[shape.len().saturating_sub(1)..]),
            3 => self.random(&shape),
            _ => self.scalar(),
        }
    }

    fn step(&mut self) -> Option<NodeId> {
        let x = self.value();
        match self.one_of(17) {
            0..=2 => self.affine(x),
            3 => self.pair(x),
            4 | 5 => self.function(x),
            6 | 7 => self.conv(x),
            8 => self.pool(x),
            9 => self.matmul(x),
            10 | 11 => self.movement(x),
            12 => self.row(x),
            13 => self.choice(x),
            14 => self.gated(x),
            15 => self.normal(x),
            _ => self.attention(x),
        }
    }

    fn affine(&mut self, x: NodeId) -> Option<NodeId> {
        let op = *[Binary::Add, Binary::Mul, Binary::Sub, Binary::Div, Binary::Max, Binary::Min, Binary::Pow]
            .choose(&mut self.net.rng)
            .unwrap();
        let constant = self.constant(x);
        // Divisors must not be near zero, and bases of powers must not be negative.
        let (x, constant) = match op {
            Binary::Div => {
                let apart = self.net.unary(UnaryOp::Exp, constant);
                (x, self.known(apart))
            }
            Binary::Pow => {
                let number = self.one_of(4);
                let half = self.net.scalar([0.5, 2.0, 3.0, 1.0][number]);
                (self.add(Map(Function::Op(UnaryOp::Abs)), &[x])?, self.known(half))
            }
            _ => (x, constant),
        };
        let turned = !matches!(op, Binary::Div | Binary::Pow) && self.one_of(3) == 0;
        self.add(op, &if turned { [constant, x] } else { [x, constant] })
    }

    fn pair(&mut self, x: NodeId) -> Option<NodeId> {
        let op = *[Binary::Add, Binary::Sub, Binary::Mul, Binary::Max].choose(&mut self.net.rng).unwrap();
        let y = self.value();
        self.add(op, &[x, y])
    }

    fn function(&mut self, x: NodeId) -> Option<NodeId> {
        let words: [(&str, &[f32]); 12] = [
            ("none", &[]),
            ("relu", &[]),
            ("clip", &[0.0, 6.0]),
            ("clip", &[-0.5, 1.0]),
            ("clip", &[0.0, 1.0]),
            ("leaky_relu", &[0.1]),
            ("sigmoid", &[]),
            ("tanh", &[]),
            ("hard_sigmoid", &[0.2, 0.5]),
            ("hard_swish", &[]),
            ("silu", &[]),
            ("gelu", &[]),
        ];
        let ops = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Erf, UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Sigmoid];
        let number = self.one_of(words.len() + ops.len());
        let function = match words.get(number) {
            Some((word, parameters)) => Function::Activation(Activation::new(word, parameters).unwrap()),
            None => Function::Op(ops[number - words.len()]),
        };
        self.add(Map(function), &[x])
    }

    fn window(&mut self, most: usize) -> Sliding {
        let pad = [self.one_of(3), self.one_of(3)];
        Sliding {
            kernel: 1 + self.one_of(most),
            stride: 1 + self.one_of(2),
            dilation: 1 + self.one_of(2),
            pad: if self.one_of(3) == 0 { pad } else { [pad[0]; 2] },
        }
    }

    fn conv(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        if shape.len() < 3 {
            return None;
        }
        let groups = if shape[1].is_multiple_of(2) { 1 + self.one_of(2) } else { 1 };
        let window: Vec<Sliding> = (2..shape.len()).map(|_| self.window(3)).collect();
        let kernels: Vec<usize> = window.iter().map(|window| window.kernel).collect();
        let transposed = self.one_of(4) == 0;
        let lead = if transposed { [shape[1], 2] } else { [4, shape[1] / groups] };
        let weights = self.random(&[&lead[..], &kernels].concat());
        let mut operands = vec![x, weights];

        if self.one_of(2) == 0 {
            operands.push(self.random(&[if transposed { 2 * groups } else { 4 }]));
        }

        let op: Op = match transposed {
            true => {
                let output_pad = window.iter().map(|_| self.one_of(2)).collect();
                ConvTranspose { window, output_pad, groups }.into()
            }
            false => Conv { window, groups }.into(),
        };

        let conv = self.add(op, &operands)?;
        if self.one_of(2) == 0 {
            let constant = self.constant(conv);
            let op = [Binary::Mul, Binary::Add][self.one_of(2)];
            return self.add(op, &[conv, constant]);
        }
        Some(conv)
    }

    fn pool(&mut self, x: NodeId) -> Option<NodeId> {
        let axes = self.shape(x).len().saturating_sub(2);
        let window: Vec<Sliding> = (0..axes).map(|_| self.window(3)).collect();
        // Every window must contain an element of the image.
        let window = window.into_iter().map(|window| Sliding {
            dilation: 1,
            pad: window.pad.map(|pad| pad.min(window.kernel - 1)),
            ..window
        });
        let kind = [PoolKind::Max, PoolKind::Average, PoolKind::InnerAverage][self.one_of(3)];
        let ceil = self.one_of(3) == 0;
        self.add(Pool { window: window.collect(), ceil, kind }, &[x])
    }

    fn matmul(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let k = *shape.last()?;
        let weights = self.random(&[k, 5]);
        let product = self.add(MatMul, &[x, weights])?;
        let bias = self.random(&[5]);
        self.add(Binary::Add, &[bias, product])
    }

    fn movement(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let rank = shape.len();
        let op: Op = match self.one_of(9) {
            0 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                let (a, b) = (self.one_of(rank.max(1)), self.one_of(rank.max(1)));
                perm.swap(*[a, 0].get(usize::from(rank == 0))?, b.min(rank.checked_sub(1)?));
                Transpose(perm).into()
            }

            1 => {
                let at = self.one_of(rank.max(1));
                let merged = [&shape[..at], &[shape[at..].iter().product()]].concat();
                Reshape(merged).into()
            }
            2 => Reshape([&shape[..], &[1]].concat()).into(),
            3 => {
                let half = |extent: usize| Range { start: extent / 3, step: 1, count: extent - extent / 3 };
                Slice(shape.iter().map(|&extent| half(extent)).collect()).into()
            }
            4 => {
                let back = |extent: usize| Range { start: extent - 1, step: -2, count: extent.div_ceil(2) };
                Slice(shape.iter().map(|&extent| back(extent)).collect()).into()
            }
            5 => Expand([&[2], &shape[..]].concat()).into(),
            6 => {
                let mode = [PadMode::Constant, PadMode::Edge, PadMode::Reflect][self.one_of(3)];
                let axes = (0..rank).map(|axis| if axis > 1 { [self.one_of(3), self.one_of(3)] } else { [0, 0] });
                Pad { pad: axes.collect(), mode, value: 0.0 }.into()
            }
            7 => {
                let sampling = [Sampling::Linear, Sampling::Nearest(Rounding::PreferFloor)][self.one_of(2)];
                let size = [1 + self.one_of(6), 1 + self.one_of(6)];
                Resize { size, coordinates: Coordinates::HalfPixel, sampling }.into()
            }
            _ => {
                let y = self.value();
                let axis = self.one_of(rank.max(1));
                return self.add(Concat { axis }, &[x, y]).or_else(|| self.add(Concat { axis }, &[x, x]));
            }
        };
        self.add(op, &[x])
    }

    fn row(&mut self, x: NodeId) -> Option<NodeId> {
        let shape = self.shape(x);
        let axis = self.one_of(shape.len().max(1));
        match self.one_of(6) {
            0 => {
                let log = self.one_of(2) == 0;
                self.add(Softmax { axis, log }, &[x])
            }
            1 => {
                let (scale, bias) = (self.random(shape.get(axis..)?), self.random(&shape[axis..]));
                self.add(LayerNorm { axis, eps: 0.1 }, &[x, scale, bias])
            }
            2 => {
                let (scale, bias) = (self.random(shape.get(1..2)?), self.random(&shape[1..2]));
                self.add(GroupNorm { groups: 1, eps: 0.1 }, &[x, scale, bias])
            }
            3 => self.add(LocalResponseNorm { size: 3, alpha: 0.1, beta: 0.75, bias: 1.0 }, &[x]),
            _ => {
                let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Mean][self.one_of(4)];
                let all = [vec![axis], (1..shape.len()).collect(), (2..shape.len()).collect()];
                let (axes, keep_axes) = (all[self.one_of(3)].clone(), self.one_of(2) == 0);
                self.add(Reduce { op, axes, keep_axes }, &[x])
            }
        }
    }

    /// Adds a choice by an exact condition, so that rounding cannot change it.
    fn choice(&mut self, x: NodeId) -> Option<NodeId> {
        let number = self.one_of(4);
        let input = self.net.graph.inputs()[number];
        match self.one_of(4) {
            0 => {
                let constant = self.constant(input);
                let less = self.add(Binary::Less, &[input, constant])?;
                let not = self.add(Not, &[less])?;
                let scalar = self.scalar();
                self.add(Where, &[not, input, scalar])
            }
            1 => {
                let slopes = self.constant(x);
                self.add(Prelu, &[x, slopes])
            }
            2 => {
                let numbers = self.net.graph.constant("numbers", Tensor::i64(&[2], vec![1, 0]).unwrap());
                self.known(numbers);
                let axis = self.one_of(self.shape(x).len().max(1));
                self.add(Gather { axis }, &[x, numbers])
            }
            _ => self.add(Cast(DType::F32), &[x]),
        }
    }

    fn gated(&mut self, x: NodeId) -> Option<NodeId> {
        let with = |maker: &mut Self, op, x, value: f32| {
            let scalar = maker.net.scalar(value);
            maker.known(scalar);
            maker.add(op, &[x, scalar])
        };
        let activation =
            |word, parameters: &[f32]| Map(Function::Activation(Activation::new(word, parameters).unwrap()));

        match self.one_of(3) {
            0 => {
                let sigmoid = self.add(activation("sigmoid", &[]), &[x])?;
                self.add(Binary::Mul, &[sigmoid, x])
            }
            1 => {
                let sum = with(self, Binary::Add, x, 3.0)?;
                let clip = self.add(activation("clip", &[0.0, 6.0]), &[sum])?;
                let product = self.add(Binary::Mul, &[x, clip])?;
                with(self, Binary::Div, product, 6.0)
            }
            _ => {
                let scaled = with(self, Binary::Div, x, std::f32::consts::SQRT_2)?;
                let erf = self.add(Map(Function::Op(UnaryOp::Erf)), &[scaled])?;
                let sum = with(self, Binary::Add, erf, 1.0)?;
                let product = self.add(Binary::Mul, &[x, sum])?;
                with(self, Binary::Mul, product, 0.5)
            }
        }
    }

    fn normal(&mut self, x: NodeId) -> Option<NodeId> {
        let rank = self.shape(x).len();
        let axes: Vec<usize> = (rank.saturating_sub(1 + self.one_of(2))..rank).collect();
        let mean = Reduce { op: ReduceOp::Mean, axes, keep_axes: true };
        let average = self.add(mean.clone(), &[x])?;
        let centred = self.add(Binary::Sub, &[x, average])?;
        let square = self.add(Binary::Mul, &[centred, centred])?;
        let variance = self.add(mean, &[square])?;
        let eps = self.net.scalar(0.1);
        let sum = self.add(Binary::Add, &[variance, eps])?;
        let root = self.add(Map(Function::Op(UnaryOp::Sqrt)), &[sum])?;
        let normal = self.add(Binary::Div, &[centred, root])?;
        let scale = self.constant(normal);
        self.add(Binary::Mul, &[normal, scale])
    }

    fn attention(&mut self, x: NodeId) -> Option<NodeId> {
        let rank = self.shape(x).len();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank.checked_sub(2)?, rank - 1);
        let keys = self.add(Transpose(perm), &[x])?;
        let mut scores = self.add(MatMul, &[x, keys])?;
        if self.one_of(2) == 0 {
            let scale = self.scalar();
            scores = self.add(Binary::Mul, &[scores, scale])?;
        }
        if self.one_of(2) == 0 {
            let mask = self.constant(scores);
            scores = self.add(Binary::Add, &[mask, scores])?;
        }
        let weights = self.add(Softmax { axis: rank - 1, log: false }, &[scores])?;
        self.add(MatMul, &[weights, x])
    }
}
