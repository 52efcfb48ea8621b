//! Which nodes are one step.

use autotune_workloads::{Activation, Epilogue, Function, Workload};

use super::anchor::{Anchor, anchor, channels};
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op};

/// A node with a workload, and those behind it that are its epilogue.
pub(super) struct Group {
    anchor: Anchor,
    first: NodeId,
    tail: NodeId,
    /// True if what scales the tensor and is added to it can be fused.
    takes_sums: bool,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    residual: Option<NodeId>,
    slope: Option<NodeId>,
    activation: Activation,
    post_scale: Option<NodeId>,
    post_bias: Option<NodeId>,
}

/// All groups of a graph.
pub(super) struct Groups {
    groups: Vec<Group>,
    /// For each node its group.
    of_nodes: Vec<Option<usize>>,
}

/// What a node does to what is computed in front of it.
enum Part {
    Scale(NodeId),
    Bias(NodeId),
    Residual(NodeId),
    Slope(NodeId),
    Activation(Activation),
    PostScale(NodeId),
    PostBias(NodeId),
}

impl Groups {
    /// The groups of a graph. A node that could be fused behind several takes that with the most work.
    pub(super) fn of(graph: &Graph) -> Self {
        let uses = graph.uses();
        let mut groups = Self { groups: Vec::new(), of_nodes: vec![None; uses.len()] };
        for (id, node) in graph.nodes() {
            if let Some((host, part)) = groups.host(graph, &uses, node) {
                groups.groups[host].fuse(part, id);
                groups.of_nodes[id.0 as usize] = Some(host);
            } else if let Some(group) = Group::of_channels(graph, id).or_else(|| Group::of(graph, id)) {
                groups.of_nodes[id.0 as usize] = Some(groups.groups.len());
                groups.groups.push(group);
            }
        }
        groups
    }

    /// The group whose tensor is that of a node.
    pub(super) fn ending_at(&self, id: NodeId) -> Option<&Group> {
        self.of_nodes[id.0 as usize].map(|group| &self.groups[group]).filter(|group| group.tail == id)
    }

    /// What must be computed before a node.
    pub(super) fn read_by(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        match self.ending_at(id) {
            Some(group) => group.operands(),
            None => graph.node(id).operands.clone(),
        }
    }

    /// The group that a node can be fused behind.
    fn host(&self, graph: &Graph, uses: &[usize], node: &Node) -> Option<(usize, Part)> {
        let hosts = (0..node.operands.len()).filter_map(|place| {
            let operand = node.operands[place];
            let host = self.of_nodes[operand.0 as usize]?;
            let group = &self.groups[host];
            let is_last = group.tail == operand && uses[operand.0 as usize] == 1;
            let has_shape = graph.node(operand).shape == node.shape;
            Some((host, group.part(graph, node, place).filter(|_| is_last && has_shape)?))
        });
        hosts.max_by(|(a, _), (b, _)| self.groups[*a].flops().total_cmp(&self.groups[*b].flops()))
    }
}

impl Group {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let anchor = anchor(graph, id)?;
        let op = &graph.node(id).op;
        let takes_sums = matches!(op, Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul | Op::Resize { .. });
        // A third operand is the bias.
        let bias = anchor.workload.epilogue().bias.then(|| anchor.operands[2]);
        Some(Self { takes_sums, bias, ..Self::bare(anchor, id) })
    }

    /// A product with a value for each channel of an image, or the sum with it, as the epilogue of a copy: what else is done to channels can
    /// be fused behind it.
    fn of_channels(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let Op::Binary(binary @ (Binary::Mul | Binary::Add)) = node.op else { return None };
        let shape = |place: usize| &*graph.node(node.operands[place]).shape;
        let is_image = |place: usize| shape(place) == node.shape && node.shape.len() > 2;
        let place = (0..2).find(|&place| is_image(place) && is_along(shape(1 - place), &node.shape, 1))?;
        let [image, values] = [place, 1 - place].map(|place| node.operands[place]);

        let anchor = Anchor { workload: channels(&node.shape)?, operands: vec![image], channel: Some(1) };
        let [scale, bias] = [Binary::Mul, Binary::Add].map(|op| (op == binary).then_some(values));
        Some(Self { takes_sums: true, scale, bias, ..Self::bare(anchor, id) })
    }

    /// Without an epilogue.
    fn bare(anchor: Anchor, id: NodeId) -> Self {
        Self {
            anchor,
            first: id,
            tail: id,
            takes_sums: false,
            scale: None,
            bias: None,
            residual: None,
            slope: None,
            activation: Activation::None,
            post_scale: None,
            post_bias: None,
        }
    }

    fn flops(&self) -> f64 {
        self.anchor.workload.flops()
    }

    /// What a node does to this group's tensor, which is its operand at `place`, if an epilogue has that and has it last.
    fn part(&self, graph: &Graph, node: &Node, place: usize) -> Option<Part> {
        let other = node.operands.get(1 - place.min(1)).copied();
        let of_channels = |id: NodeId| {
            let axis = self.anchor.channel.filter(|_| self.takes_sums)?;
            is_along(&graph.node(id).shape, &node.shape, axis).then_some(id)
        };

        if self.activation != Activation::None {
            let is_open = self.post_bias.is_none();
            return match node.op {
                Op::Binary(Binary::Mul) if is_open && self.post_scale.is_none() => {
                    of_channels(other?).map(Part::PostScale)
                }
                Op::Binary(Binary::Add) if is_open => of_channels(other?).map(Part::PostBias),
                _ => None,
            };
        }

        let is_scaled_only = self.bias.is_none() && self.residual.is_none();
        match node.op {
            Op::Map(Function::Activation(Activation::None | Activation::Prelu)) => None,
            Op::Map(Function::Activation(activation)) => Some(Part::Activation(activation)),
            Op::Prelu if place == 0 => of_channels(other?).map(Part::Slope),
            Op::Binary(Binary::Mul) if is_scaled_only && self.scale.is_none() => of_channels(other?).map(Part::Scale),
            Op::Binary(Binary::Add) if self.takes_sums && self.residual.is_none() => {
                let other = other?;
                let bias = of_channels(other).filter(|_| self.bias.is_none()).map(Part::Bias);
                bias.or_else(|| (graph.node(other).shape == node.shape).then_some(Part::Residual(other)))
            }
            _ => None,
        }
    }

    fn fuse(&mut self, part: Part, id: NodeId) {
        self.tail = id;
        match part {
            Part::Scale(scale) => self.scale = Some(scale),
            Part::Bias(bias) => self.bias = Some(bias),
            Part::Residual(residual) => self.residual = Some(residual),
            Part::Slope(slope) => (self.slope, self.activation) = (Some(slope), Activation::Prelu),
            Part::Activation(activation) => self.activation = activation,
            Part::PostScale(scale) => self.post_scale = Some(scale),
            Part::PostBias(bias) => self.post_bias = Some(bias),
        }
    }

    /// The node whose workload it is.
    pub(super) fn first(&self) -> NodeId {
        self.first
    }

    /// What the step computes.
    pub(super) fn workload(&self) -> Workload {
        let parts = [self.scale, self.bias, self.residual, self.post_scale, self.post_bias];
        let [scale, bias, residual, post_scale, post_bias] = parts.map(|part| part.is_some());
        let activation = self.activation;
        self.anchor.workload.with_epilogue(Epilogue { scale, bias, residual, activation, post_scale, post_bias })
    }

    /// What the step reads, in the order of its workload's spec.
    pub(super) fn operands(&self) -> Vec<NodeId> {
        let own = self.anchor.operands.len() - usize::from(self.anchor.workload.epilogue().bias);
        let parts = [self.scale, self.bias, self.residual, self.slope, self.post_scale, self.post_bias];
        self.anchor.operands[..own].iter().copied().chain(parts.into_iter().flatten()).collect()
    }
}

/// True if a tensor of `own` shape has an element for each step along one axis of a `whole` shape, to which it is broadcast.
fn is_along(own: &[usize], whole: &[usize], axis: usize) -> bool {
    let Some(missing) = whole.len().checked_sub(own.len()) else { return false };
    (0..whole.len()).all(|at| {
        let extent = at.checked_sub(missing).map_or(1, |own_axis| own[own_axis]);
        extent == if at == axis { whole[axis] } else { 1 }
    })
}
