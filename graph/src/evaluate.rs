//! Reference evaluation of a graph, node by node with
//! [`Operator::evaluate`](crate::Operator::evaluate).

use std::borrow::{Borrow, Cow};

use crate::error::{EvaluateError, GraphError};
use crate::graph::{Graph, GraphNode, Input, NodeId};
use crate::tensor::Tensor;

impl Graph {
    /// Evaluates all outputs, in their order; `inputs` are in the order of [`Graph::inputs`].
    ///
    /// ```
    /// use autotune_graph::{DType, Graph, Tensor, operators::Binary};
    /// let mut graph = Graph::new("sum");
    /// let x = graph.input("x", DType::F32, &[2])?;
    /// let y = graph.add("y", Binary::Add, &[x, x])?;
    /// graph.output("y", y);
    /// let outputs = graph.evaluate(&[Tensor::f32(&[2], vec![1.0, 2.0])?])?;
    /// assert_eq!(outputs, [Tensor::f32(&[2], vec![2.0, 4.0])?]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evaluate(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EvaluateError> {
        self.evaluate_each(inputs, |_, _| ())
    }

    /// Evaluates all outputs, and passes the tensor of every node to `visit`, in topological order.
    /// A tensor is dropped after its last use.
    pub fn evaluate_each(
        &self,
        inputs: &[impl Borrow<Tensor>],
        mut visit: impl FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>, EvaluateError> {
        self.check_inputs(inputs)?;
        let mut brought = inputs.iter();
        let mut uses = self.uses();
        let mut tensors: Vec<Option<Cow<Tensor>>> = Vec::with_capacity(uses.len());

        for (id, node) in self.nodes() {
            let tensor = match self.constant_of(id) {
                Some(constant) => Some(constant.read().map_err(|source| node.wrong(source))?),
                None if node.op.is::<Input>() => brought.next().map(|tensor| Cow::Borrowed(tensor.borrow())),
                None => Some(Cow::Owned(evaluate_node(node, &tensors)?)),
            };
            tensor.iter().for_each(|tensor| visit(id, tensor));
            // A tensor that nothing reads is dropped at once.
            tensors.push(tensor.filter(|_| uses[id.0 as usize] > 0));

            for operand in &node.operands {
                let operand = operand.0 as usize;
                uses[operand] -= 1;
                if uses[operand] == 0 {
                    tensors[operand] = None;
                }
            }
        }
        let outputs = self.outputs().iter().filter_map(|output| tensors[output.node.0 as usize].as_deref());
        Ok(outputs.cloned().collect())
    }

    /// Fails unless tensors match the declarations of the inputs.
    pub fn check_inputs(&self, inputs: &[impl Borrow<Tensor>]) -> Result<(), EvaluateError> {
        let (found, wanted) = (inputs.len(), self.inputs().len());
        if found != wanted {
            return Err(EvaluateError::Count { found, wanted });
        }
        for (&id, tensor) in self.inputs().iter().zip(inputs) {
            let (node, tensor) = (self.node(id), tensor.borrow());
            if (tensor.shape(), tensor.dtype()) != (&*node.shape, node.dtype) {
                return Err(EvaluateError::Input {
                    name: node.name.clone(),
                    found: tensor.shape().to_vec(),
                    found_dtype: tensor.dtype(),
                    wanted: node.shape.clone(),
                    wanted_dtype: node.dtype,
                });
            }
        }
        Ok(())
    }
}

/// Evaluates a node from the tensors of its operands, which exist since each is kept until its last
/// use.
fn evaluate_node(node: &GraphNode, tensors: &[Option<Cow<Tensor>>]) -> Result<Tensor, GraphError> {
    let operands: Vec<&Tensor> = node.operands.iter().filter_map(|id| tensors[id.0 as usize].as_deref()).collect();
    node.op.evaluate(&operands).map_err(|source| node.wrong(source))
}
