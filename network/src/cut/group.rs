//! Fusion: grouping of nodes that become one step.

use autotune_ir::DType;
use autotune_workloads::{Activation, Channels, Epilogue, Function, Pointwise, Types, Workload};

use autotune_graph::is_of_bytes;
use autotune_graph::op::Anchor;
use autotune_graph::operators::Binary;
use autotune_graph::operators::Map;
use autotune_graph::operators::Prelu;
use autotune_graph::operators::{Cast, Lookup, Rescale, Saturate};
use autotune_graph::{Graph, GraphNode, NodeId};

/// A node with a workload, and the following nodes that become its epilogue.
pub(super) struct FusionGroup {
    /// Workload without the fused epilogue.
    anchor: Workload,
    /// Operands in the order of its spec, including a bias.
    read: Vec<NodeId>,
    /// Axis along which the epilogue has scale and bias, if any.
    channel: Option<usize>,
    first: NodeId,
    tail: NodeId,
    /// True if scales and additions can be fused.
    allows_scale_and_add: bool,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    /// Added tensor and its element type.
    residual: Option<(NodeId, DType)>,
    slope: Option<NodeId>,
    activation: Activation,
    post_scale: Option<NodeId>,
    post_bias: Option<NodeId>,
    /// Tensor of an 8-bit type that is added last, and its scale.
    post_residual: Option<ScaledResidual>,
    /// Table in which the result is looked up, after it is rounded to u8.
    table: Option<NodeId>,
    /// 8-bit type that the result is rounded to.
    stored: Option<DType>,
}

/// An 8-bit tensor with a scale for each channel.
#[derive(Clone, Copy)]
struct ScaledResidual {
    scale: NodeId,
    tensor: NodeId,
    dtype: DType,
}

/// All groups of a graph.
pub(super) struct FusionGroups {
    groups: Vec<FusionGroup>,
    /// Group of each node.
    of_nodes: Vec<Option<usize>>,
}

/// Role of a node in the epilogue of a group.
enum EpiloguePart {
    Scale(NodeId),
    Bias(NodeId),
    Residual(NodeId, DType),
    Slope(NodeId),
    Activation(Activation),
    PostScale(NodeId),
    PostBias(NodeId),
    PostResidual(ScaledResidual),
    /// Scale, bias, and the 8-bit type for rounding, if any.
    Rescale(NodeId, NodeId, Option<DType>),
    Stored(DType),
    /// Table and its element type.
    Table(NodeId, DType),
}

impl FusionGroups {
    /// Groups the nodes of a graph. A node that could be fused into several groups joins the one
    /// with the most work.
    pub(super) fn of(graph: &Graph) -> Self {
        let uses = graph.uses();
        let mut groups = Self { groups: Vec::new(), of_nodes: vec![None; uses.len()] };
        for (id, node) in graph.nodes() {
            if let Some((host, part)) = groups.host(graph, &uses, node) {
                groups.groups[host].fuse(part, id);
                groups.of_nodes[id.0 as usize] = Some(host);
            } else if let Some(group) = FusionGroup::of_channels(graph, id).or_else(|| FusionGroup::of(graph, id)) {
                groups.of_nodes[id.0 as usize] = Some(groups.groups.len());
                groups.groups.push(group);
            }
        }
        groups
    }

    /// Returns the group whose last node is `id`.
    pub(super) fn ending_at(&self, id: NodeId) -> Option<&FusionGroup> {
        self.of_nodes[id.0 as usize].map(|group| &self.groups[group]).filter(|group| group.tail == id)
    }

    /// Returns the nodes that must be computed before a node.
    pub(super) fn read_by(&self, graph: &Graph, id: NodeId) -> Vec<NodeId> {
        match self.ending_at(id) {
            Some(group) => group.operands(),
            None => graph.node(id).operands.clone(),
        }
    }

    /// Returns the group that a node can be fused into, and its role there.
    fn host(&self, graph: &Graph, uses: &[usize], node: &GraphNode) -> Option<(usize, EpiloguePart)> {
        let hosts = (0..node.operands.len()).filter_map(|place| {
            let operand = node.operands[place];
            let host = self.of_nodes[operand.0 as usize]?;
            let group = &self.groups[host];
            // Only the sole reader of the group's last tensor can be fused.
            let is_last = group.tail == operand && uses[operand.0 as usize] == 1;
            let has_shape = graph.node(operand).shape == node.shape;
            Some((host, group.part(graph, node, place).filter(|_| is_last && has_shape)?))
        });
        hosts.max_by(|(a, _), (b, _)| self.groups[*a].flops().total_cmp(&self.groups[*b].flops()))
    }
}

impl FusionGroup {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let (anchor, read) = graph.anchor(id)?;
        let Anchor { workload, channel, allows_scale_and_add, .. } = anchor;
        // The workload's own epilogue operands follow the others.
        let mut parts = read[read.len() - own_parts(&workload)..].iter().copied();
        let Epilogue { scale, bias, table, .. } = workload.epilogue();
        let [scale, bias, table] = [scale, bias, table].map(|is_there| if is_there { parts.next() } else { None });
        Some(Self { channel, allows_scale_and_add, scale, bias, table, ..Self::bare(workload, read, id) })
    }

    /// Treats a product or sum with a value for each channel of an image as the epilogue of a copy,
    /// so that further per-channel operations can be fused.
    fn of_channels(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let Some(&binary @ (Binary::Mul | Binary::Add)) = node.op.of() else { return None };
        let shape = |place: usize| &*graph.node(node.operands[place]).shape;
        let is_image = |place: usize| shape(place) == node.shape && node.shape.len() > 2;
        let place = (0..2).find(|&place| is_image(place) && varies_only_along(shape(1 - place), &node.shape, 1))?;
        let [image, values] = [place, 1 - place].map(|place| node.operands[place]);

        let [scale, bias] = [Binary::Mul, Binary::Add].map(|op| (op == binary).then_some(values));
        let bare = Self::bare(channels(&node.shape)?, vec![image], id);
        Some(Self { channel: Some(1), allows_scale_and_add: true, scale, bias, ..bare })
    }

    /// Creates a group without an epilogue.
    fn bare(anchor: Workload, read: Vec<NodeId>, id: NodeId) -> Self {
        Self {
            anchor,
            read,
            channel: None,
            first: id,
            tail: id,
            allows_scale_and_add: false,
            scale: None,
            bias: None,
            residual: None,
            slope: None,
            activation: Activation::None,
            post_scale: None,
            post_bias: None,
            post_residual: None,
            table: None,
            stored: None,
        }
    }

    fn flops(&self) -> f64 {
        self.anchor.flops()
    }

    /// Returns the role of a node whose operand at `place` is this group's tensor, if the epilogue
    /// supports it in last position.
    fn part(&self, graph: &Graph, node: &GraphNode, place: usize) -> Option<EpiloguePart> {
        if node.op.is::<Lookup>() && place == 0 {
            let is_open = self.result_dtype() == DType::U8 && self.table.is_none() && self.rounds(node.dtype);
            return is_open.then(|| EpiloguePart::Table(node.operands[1], node.dtype));
        }
        // Epilogues compute in f32; a rounded result ends the group.
        if self.result_dtype() != DType::F32 {
            return None;
        }
        if let Some(&Saturate(dtype)) = node.op.of() {
            return self.rounds(dtype).then_some(EpiloguePart::Stored(dtype));
        }
        if let Some(rescale) = node.op.of() {
            return self.rescaled(rescale, node).filter(|_| place == 0);
        }
        let other = node.operands.get(1 - place.min(1)).copied();
        let of_channels = |id: NodeId| {
            let axis = self.channel.filter(|_| self.allows_scale_and_add)?;
            varies_only_along(&graph.node(id).shape, &node.shape, axis).then_some(id)
        };

        let binary = node.op.of();
        // Only the rounding may follow.
        if self.post_residual.is_some() {
            return None;
        }
        let is_sum = binary == Some(&Binary::Add) && self.residual.is_none() && self.allows_scale_and_add;
        if let Some(scaled) = other.filter(|_| is_sum).and_then(|other| self.scaled_residual(graph, other)) {
            return Some(EpiloguePart::PostResidual(scaled));
        }
        // After the activation an epilogue supports only one more scale and one more bias.
        if self.activation != Activation::None {
            let is_open = self.post_bias.is_none();
            return match binary {
                Some(Binary::Mul) if is_open && self.post_scale.is_none() => {
                    of_channels(other?).map(EpiloguePart::PostScale)
                }
                Some(Binary::Add) if is_open => of_channels(other?).map(EpiloguePart::PostBias),
                _ => None,
            };
        }

        if let Some(&Map(function)) = node.op.of() {
            return match function {
                Function::Activation(Activation::None | Activation::Prelu) | Function::Op(_) => None,
                Function::Activation(round @ Activation::Round { .. }) => {
                    self.rounds_sums(round).then_some(EpiloguePart::Activation(round))
                }
                Function::Activation(activation) => Some(EpiloguePart::Activation(activation)),
            };
        }
        if node.op.is::<Prelu>() && place == 0 {
            return of_channels(other?).map(EpiloguePart::Slope);
        }
        // The scale precedes bias and residual in an epilogue.
        let is_scaled_only = self.bias.is_none() && self.residual.is_none();
        match binary {
            Some(Binary::Mul) if is_scaled_only && self.scale.is_none() => of_channels(other?).map(EpiloguePart::Scale),
            Some(Binary::Add) if self.allows_scale_and_add && self.residual.is_none() => {
                let other = other?;
                let bias = of_channels(other).filter(|_| self.bias.is_none()).map(EpiloguePart::Bias);
                bias.or_else(|| (graph.node(other).shape == node.shape).then(|| self.residual(graph, other)))
            }
            _ => None,
        }
    }

    /// Returns the role of an added tensor. 8-bit integers are added without conversion where
    /// kernels support it.
    fn residual(&self, graph: &Graph, id: NodeId) -> EpiloguePart {
        let node = graph.node(id);
        let source = node.operands.first().copied().filter(|_| node.op == Cast(DType::F32));
        let of_bytes = source.filter(|&source| is_of_bytes(graph.node(source).dtype));
        match of_bytes.filter(|_| self.anchor.types().data.is_integer()) {
            Some(source) => EpiloguePart::Residual(source, graph.node(source).dtype),
            None => EpiloguePart::Residual(id, DType::F32),
        }
    }

    /// Matches an 8-bit tensor times a number for each channel, which kernels of integers add after
    /// everything else.
    fn scaled_residual(&self, graph: &Graph, id: NodeId) -> Option<ScaledResidual> {
        let &Rescale { dtype: DType::F32, axis } = graph.node(id).op.of()? else { return None };
        let &[tensor, scale, shift] = &graph.node(id).operands[..] else { return None };
        let dtype = graph.node(tensor).dtype;
        let fits = self.anchor.types().data.is_integer() && self.channel == Some(axis) && is_of_bytes(dtype);
        let shift = graph.constant_of(shift).filter(|_| fits)?.read().ok()?;
        let is_shifted = shift.to_numbers().iter().any(|shift| *shift != 0.0);
        (!is_shifted).then_some(ScaledResidual { scale, tensor, dtype })
    }

    /// Returns the element type of the group's tensor.
    fn result_dtype(&self) -> DType {
        self.stored.unwrap_or_else(|| self.anchor.result_dtype())
    }

    /// True if the kernels can round results to an 8-bit type: those on integers, and those that
    /// only move elements. Schedules of others lack it.
    fn rounds(&self, dtype: DType) -> bool {
        let of_integers = self.anchor.types().data.is_integer();
        (of_integers || self.anchor.operator().moves_bytes()) && self.typed_as(dtype).is_some()
    }

    /// True for the rounding of integer sums that are then quantised again. Epilogues with results
    /// of other types have no rounding.
    fn rounds_sums(&self, activation: Activation) -> bool {
        let [least, most] = [DType::I8.range()[0], DType::U8.range()[1]];
        let fits = |bound: f32| (least..=most).contains(&f64::from(bound));
        let is_of_bytes = matches!(activation, Activation::Round { lo, hi, .. } if fits(lo) && fits(hi));
        is_of_bytes && self.anchor.types().data.is_integer()
    }

    /// Returns the role of a [`Rescale`] as scale and bias, if the epilogue has none there yet.
    fn rescaled(&self, rescale: &Rescale, node: &GraphNode) -> Option<EpiloguePart> {
        let stored = (rescale.dtype != DType::F32).then_some(rescale.dtype);
        let is_open = self.allows_scale_and_add && self.channel == Some(rescale.axis) && self.post_residual.is_none();
        let is_first = self.has_nothing_fused() || self.post_scale.is_none() && self.post_bias.is_none();
        let is_rounded = stored.is_none_or(|dtype| self.rounds(dtype));
        (is_open && is_first && is_rounded).then(|| EpiloguePart::Rescale(node.operands[1], node.operands[2], stored))
    }

    /// True if nothing is fused to the anchor yet.
    fn has_nothing_fused(&self) -> bool {
        let parts = [self.scale, self.bias, self.post_scale, self.post_bias];
        let has_residual = self.residual.is_some() || self.post_residual.is_some();
        parts.iter().all(Option::is_none) && !has_residual && self.activation == Activation::None
    }

    fn fuse(&mut self, part: EpiloguePart, id: NodeId) {
        self.tail = id;
        match part {
            EpiloguePart::Rescale(scale, bias, stored) => {
                // Before the activation if nothing is fused yet, else after it.
                let to = match self.has_nothing_fused() {
                    true => [&mut self.scale, &mut self.bias],
                    false => [&mut self.post_scale, &mut self.post_bias],
                };
                to.into_iter().zip([scale, bias]).for_each(|(to, of)| *to = Some(of));
                self.stored = stored;
            }
            EpiloguePart::Stored(dtype) => self.stored = Some(dtype),
            EpiloguePart::Table(table, dtype) => (self.table, self.stored) = (Some(table), Some(dtype)),
            EpiloguePart::Scale(scale) => self.scale = Some(scale),
            EpiloguePart::Bias(bias) => self.bias = Some(bias),
            EpiloguePart::Residual(residual, dtype) => self.residual = Some((residual, dtype)),
            EpiloguePart::Slope(slope) => (self.slope, self.activation) = (Some(slope), Activation::Prelu),
            EpiloguePart::Activation(activation) => self.activation = activation,
            EpiloguePart::PostScale(scale) => self.post_scale = Some(scale),
            EpiloguePart::PostBias(bias) => self.post_bias = Some(bias),
            EpiloguePart::PostResidual(residual) => self.post_residual = Some(residual),
        }
    }

    /// Returns the node whose workload anchors the group.
    pub(super) fn first(&self) -> NodeId {
        self.first
    }

    /// Returns the workload with the fused epilogue.
    pub(super) fn workload(&self) -> Workload {
        let parts = [self.scale, self.bias, self.post_scale, self.post_bias];
        let [scale, bias, post_scale, post_bias] = parts.map(|part| part.is_some());
        let [residual, post_residual] = [self.residual.is_some(), self.post_residual.is_some()];
        let activation = self.activation;
        let table = self.table.is_some();
        let epilogue = Epilogue { scale, bias, residual, activation, post_scale, post_bias, post_residual, table };
        let whole = self.anchor.with_epilogue(epilogue);
        match self.anchor.types().is_uniform() && self.stored.is_none() {
            true => whole,
            false => whole.with_types(self.types(self.result_dtype())).unwrap_or(whole),
        }
    }

    /// Returns the element types of the workload with result type `out`; epilogue operands are f32.
    fn types(&self, out: DType) -> Types {
        let Types { data, weights, .. } = self.anchor.types();
        let residual = self.residual.map(|(_, dtype)| dtype).or(self.post_residual.map(|scaled| scaled.dtype));
        let residual = residual.unwrap_or(DType::F32);
        Types { data, weights, out, scale: DType::F32, bias: DType::F32, residual }
    }

    /// Returns the anchor's workload with another result type, if that exists.
    fn typed_as(&self, out: DType) -> Option<Workload> {
        self.anchor.with_types(self.types(out)).ok()
    }

    /// Returns the step's operands, in the order of its workload's spec.
    pub(super) fn operands(&self) -> Vec<NodeId> {
        let own = self.read.len() - own_parts(&self.anchor);
        let residual = self.residual.map(|(residual, _)| residual);
        let [by, last] = [self.post_residual.map(|of| of.scale), self.post_residual.map(|of| of.tensor)];
        let parts =
            [self.scale, self.bias, residual, self.slope, self.post_scale, self.post_bias, by, last, self.table];
        self.read[..own].iter().copied().chain(parts.into_iter().flatten()).collect()
    }
}

/// Returns the number of operands that belong to an anchor's own epilogue.
fn own_parts(anchor: &Workload) -> usize {
    let Epilogue { scale, bias, table, .. } = anchor.epilogue();
    [scale, bias, table].into_iter().filter(|is_there| *is_there).count()
}

/// Returns a copy of `[n, c, ..]` whose epilogue has a scale and a bias for each channel.
fn channels(shape: &[usize]) -> Option<Workload> {
    let &[n, c, ref spatial @ ..] = shape else { return None };
    let copy = Pointwise::copy(vec![n, c, spatial.iter().product()]);
    Workload::new(Pointwise { channels: Channels::Column, ..copy }).ok()
}

/// True if a tensor of shape `own` varies only along `axis` of the shape `whole` that it broadcasts
/// to, with one element for each step.
fn varies_only_along(own: &[usize], whole: &[usize], axis: usize) -> bool {
    let Some(missing) = whole.len().checked_sub(own.len()) else { return false };
    (0..whole.len()).all(|at| {
        let extent = at.checked_sub(missing).map_or(1, |own_axis| own[own_axis]);
        extent == if at == axis { whole[axis] } else { 1 }
    })
}
