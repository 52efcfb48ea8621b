//! Attention of ONNX Runtime with groups of heads, packed tensors and earlier keys and values,
//! compared with what ONNX Runtime 1.31 computes.

use autotune_graph::Tensor;
use rten_onnx::onnx::AttributeProto;

use crate::build::{assert_near, f32s, float, int};
use crate::onnx_runtime::{integers, model, of_runtime, ramp};

const HEADS: usize = 4;
const GROUPS: usize = 2;
const D: usize = 16;

/// Attention of new tokens after earlier ones.
struct Tokens {
    lengths: &'static [i64],
    new: usize,
    earlier: usize,
    /// Tokens that the tensors of earlier keys and values have room for.
    room: usize,
    is_packed: bool,
    is_rotated: bool,
    /// Further inputs, from the positions on.
    more: Vec<Option<Tensor>>,
}

impl Tokens {
    fn new(new: usize, earlier: usize) -> Self {
        let lengths: &[i64] = match new + earlier {
            2 => &[2],
            _ => &[4],
        };
        Self { lengths, new, earlier, room: earlier, is_packed: false, is_rotated: false, more: Vec::new() }
    }

    fn rotated(self) -> Self {
        Self { is_rotated: true, ..self }
    }

    fn inputs(&self) -> Vec<Option<Tensor>> {
        let b = self.lengths.len();
        let rows = |heads: usize, seed| ramp(&[b, self.new, heads * D], seed);
        let [q, k, v] = [rows(HEADS, 1), rows(GROUPS, 2), rows(GROUPS, 3)];
        let mut inputs = match self.is_packed {
            false => vec![Some(q), Some(k), Some(v)],
            true => vec![Some(beside(&[q, k, v])), None, None],
        };
        let past = |seed| (self.room > 0).then(|| ramp(&[b, GROUPS, self.room, D], seed));
        inputs.extend([past(4), past(5)]);
        let last: Vec<i64> = self.lengths.iter().map(|length| length - 1).collect();
        inputs.extend([Some(integers(&[b], &last)), Some(integers(&[], &[(self.new + self.earlier) as i64]))]);
        inputs.extend([6, 7].map(|seed| self.is_rotated.then(|| ramp(&[8, 8], seed))));
        inputs.extend(self.more.clone());
        inputs
    }

    fn run(&self, attributes: Vec<AttributeProto>) -> Vec<Tensor> {
        let inputs = self.inputs();
        let own = vec![
            int("num_heads", HEADS as i64),
            int("kv_num_heads", GROUPS as i64),
            int("do_rotary", self.is_rotated.into()),
        ];
        let model = model("GroupQueryAttention", &inputs, "y k v", [own, attributes].concat());
        of_runtime(&model, &inputs)
    }

    /// Fails unless every `step`th element of the output is as wanted.
    fn check(&self, attributes: Vec<AttributeProto>, step: usize, wanted: &[f32]) {
        let found = self.run(attributes).remove(0);
        assert_eq!(found.shape(), [self.lengths.len(), self.new, HEADS * D]);
        assert_near(&some(&found, step), wanted);
    }
}

/// Returns every `step`th element of a tensor.
fn some(found: &Tensor, step: usize) -> Tensor {
    let numbers: Vec<f32> = found.to_numbers().into_iter().step_by(step).collect();
    f32s(&[numbers.len()], &numbers)
}

/// Joins rows of three tensors of equal batch and sequence.
fn beside(parts: &[Tensor; 3]) -> Tensor {
    let shape = parts[0].shape();
    let rows = shape[0] * shape[1];
    let columns = |part: &Tensor| part.shape()[2];
    let row = |row: usize, part: &Tensor| part.to_numbers()[row * columns(part)..(row + 1) * columns(part)].to_vec();
    let all = (0..rows).flat_map(|at| parts.iter().flat_map(move |part| row(at, part))).collect();
    Tensor::f32(&[shape[0], shape[1], parts.iter().map(columns).sum()], all).unwrap()
}

#[test]
fn tokens_of_a_prompt() {
    let packed = Tokens { is_packed: true, ..Tokens::new(2, 0).rotated() };
    packed.check(
        vec![],
        9,
        &[
            1.0, 0.25, -1.0, 1.0, 0.25, -0.5, 1.0, 0.25, -0.119078, 0.270673, -0.479327, 0.14909, -0.60091, -0.584677,
            0.960684,
        ],
    );
    let separate = Tokens::new(2, 0).rotated().run(vec![]);
    assert_eq!(packed.run(vec![]), separate);
    // The second sequence has a token that is none.
    Tokens { lengths: &[2, 1], ..Tokens::new(2, 0) }.check(
        vec![],
        9,
        &[
            1.0, 0.25, -1.0, 1.0, 0.25, -0.5, 1.0, 0.25, -0.313291, 0.585101, -0.164899, 0.043715, -0.706285, -0.54053,
            0.883428, -1.25, 0.25, -0.5, -1.25, 0.75, -0.5, -1.25, -0.25, -1.0, 0.5, -0.25, -1.0, 0.5, -0.25,
        ],
    );
}

#[test]
fn tokens_after_earlier_ones() {
    Tokens::new(1, 3).rotated().check(
        vec![int("rotary_interleaved", 1)],
        5,
        &[
            0.281086, 0.618607, 0.533501, -0.311062, -0.197187, -0.051122, 0.448878, 0.140344, -0.802713, -0.302713,
            -0.448851, 0.051149, 0.551149,
        ],
    );
    let buffer = Tokens { room: 6, ..Tokens::new(1, 3).rotated() };
    buffer.check(
        vec![],
        5,
        &[
            0.27018, 0.347168, 0.518689, -0.127812, -0.335357, -0.097998, 0.402002, 0.82388, -0.188806, -0.084185,
            -0.465866, -0.170152, 0.282079,
        ],
    );
    // New keys and values take the place behind the earlier ones of the buffer.
    let (found, past) = (buffer.run(vec![]), buffer.inputs()[4].clone().unwrap().to_numbers());
    let values = found[2].to_numbers();
    assert_eq!(found[2].shape(), [1, GROUPS, 6, D]);
    assert_eq!((&values[..3 * D], &values[4 * D..6 * D]), (&past[..3 * D], &past[4 * D..6 * D]));
    assert_eq!(values[3 * D..4 * D], ramp(&[1, 1, GROUPS * D], 3).to_numbers()[..D]);
}

/// Sequences of a batch may have different numbers of earlier tokens.
#[test]
fn tokens_after_sequences_of_different_lengths() {
    let ragged = Tokens { lengths: &[4, 2], ..Tokens::new(1, 3).rotated() };
    ragged.check(
        vec![],
        9,
        &[
            0.27018, -0.47982, -0.331293, 0.652002, 0.453377, -0.296623, 0.887615, 0.238974, -0.378514, -0.608197,
            0.853074, 0.486752, -0.263248, -0.631207, 1.042112,
        ],
    );
    let values = ragged.run(vec![])[2].to_numbers();
    let (past, new) = (ragged.inputs()[4].clone().unwrap().to_numbers(), ramp(&[2, 1, GROUPS * D], 3).to_numbers());
    let second = GROUPS * 4 * D;
    assert_eq!(values[second..second + D], past[GROUPS * 3 * D..][..D]);
    assert_eq!(values[second + D..second + 2 * D], new[GROUPS * D..][..D]);
}

#[test]
fn scores_that_are_hidden_bounded_or_shifted() {
    Tokens::new(4, 0).check(
        vec![int("local_window_size", 2)],
        17,
        &[
            1.0, 0.0, -0.5, 1.25, 0.643309, -0.664899, -0.206285, 0.20947, -0.388759, 1.199476, 0.702454, -0.024583,
            0.002013, -0.696317, -1.182684, 0.308067,
        ],
    );
    Tokens::new(2, 0).check(
        vec![float("softcap", 0.5), float("scale", 0.25)],
        9,
        &[
            1.0, 0.25, -1.0, 1.0, 0.25, -0.5, 1.0, 0.25, -0.017725, 0.508248, -0.241752, 0.259522, -0.490478,
            -0.388948, 0.61816,
        ],
    );
    Tokens { more: vec![None, Some(ramp(&[1, HEADS, 2, 2], 8))], ..Tokens::new(2, 0) }.check(
        vec![],
        9,
        &[
            1.0, 0.25, -1.0, 1.0, 0.25, -0.5, 1.0, 0.25, -0.071101, 0.890294, 0.140294, 0.463563, -0.286437, -0.146068,
            0.193119,
        ],
    );
}

#[test]
fn scores_without_a_value() {
    let sink = Some(ramp(&[HEADS], 8));
    Tokens { more: vec![None, None, sink], ..Tokens::new(2, 0) }.check(
        vec![],
        9,
        &[
            0.488283, 0.122071, -0.63341, 0.63341, 0.168083, -0.336166, 0.923039, 0.23076, -0.267658, 0.132374,
            -0.037307, 0.02336, -0.377417, -0.425962, 0.69618,
        ],
    );
    Tokens::new(2, 0).check(
        vec![int("smooth_softmax", 1)],
        9,
        &[
            0.310694, 0.077674, -0.824462, 0.824462, 0.168083, -0.336166, 0.815233, 0.203808, -0.230204, 0.259105,
            -0.073023, 0.02336, -0.377417, -0.312243, 0.510321,
        ],
    );
}

#[test]
fn groups_that_do_not_fit() {
    let refusal = |tokens: &Tokens, attributes: Vec<AttributeProto>| {
        let own = vec![int("num_heads", HEADS as i64), int("kv_num_heads", GROUPS as i64)];
        let model = model("GroupQueryAttention", &tokens.inputs(), "y", [own, attributes].concat());
        model.import().unwrap_err().to_string()
    };
    let of = |reason: &str| format!("node 'groupqueryattention' (com.microsoft.GroupQueryAttention): {reason}");
    let window = refusal(&Tokens::new(2, 0), vec![int("sliding_window_cache", 1)]);
    assert_eq!(window, of("quantised keys and values and buffers of a window are not supported"));
    let short = refusal(&Tokens { room: 2, ..Tokens::new(1, 3) }, vec![]);
    assert_eq!(short, of("keys of shape [1, 2, 2, 16] for 3 earlier tokens"));
    let none = refusal(&Tokens::new(2, 0), vec![int("do_rotary", 1)]);
    assert_eq!(none, of("input 7: is missing"));
}

fn multi_head(inputs: &[Option<Tensor>]) -> Tensor {
    of_runtime(&model("MultiHeadAttention", inputs, "y", vec![int("num_heads", 2)]), inputs).remove(0)
}

/// Packs three rows of two heads `[b, m, 8]`, head by head, from the part with number `first` on.
fn packed(parts: &[Tensor; 3], first: usize) -> Tensor {
    let (b, m) = (parts[0].shape()[0], parts[0].shape()[1]);
    let all = (0..b * m * 2).flat_map(|at| {
        let of = move |part: &Tensor| part.to_numbers()[at * 4..(at + 1) * 4].to_vec();
        parts[first..].iter().flat_map(of)
    });
    Tensor::f32(&[b, m, 2, 3 - first, 4], all.collect()).unwrap()
}

/// Packed tensors mean what separate ones do; ONNX Runtime refuses them on CPUs.
#[test]
fn packed_queries_keys_and_values() {
    let parts = [1, 2, 3].map(|seed| ramp(&[2, 3, 8], seed));
    let bias = Some(ramp(&[24], 4));
    let separate = |bias| multi_head(&[&parts.clone().map(Some)[..], &[bias]].concat());
    let all = packed(&parts, 0);
    assert_eq!(multi_head(&[Some(all.clone())]), separate(None));
    assert_eq!(multi_head(&[Some(all), None, None, bias.clone()]), separate(bias));
    assert_eq!(multi_head(&[Some(parts[0].clone()), Some(packed(&parts, 1))]), separate(None));
}

#[test]
fn projections_after_earlier_steps() {
    let mut inputs = vec![Some(ramp(&[1, 2, 4], 1)), Some(ramp(&[4, 12], 2)), Some(ramp(&[12], 3)), None];
    inputs.push(Some(ramp(&[2, 1, 2, 2, 2], 4)));
    let attributes = vec![int("num_heads", 2), int("unidirectional", 1)];
    let found = of_runtime(&model("Attention", &inputs, "y p", attributes), &inputs);
    assert_near(&found[0], &[-0.716182, 0.934766, -1.493018, 0.127177, 0.41879, 2.151964, -0.532639, 0.249113]);
    assert_eq!(found[1].shape(), [2, 1, 2, 4, 2]);
    let present = [-1.0, -0.25, 2.0625, -1.9375, 0.5, 1.25, -0.4375, -0.625];
    assert_eq!(found[1].to_numbers().into_iter().step_by(2).take(8).collect::<Vec<_>>(), present);
}

/// A mask may have the ends of the sequences and their starts.
#[test]
fn keys_between_two_bounds() {
    let mut inputs = vec![Some(ramp(&[2, 3, 4], 1)), Some(ramp(&[4, 12], 2)), Some(ramp(&[12], 3))];
    inputs.push(Some(integers(&[4], &[3, 2, 1, 0])));
    let found = of_runtime(&model("Attention", &inputs, "y", vec![int("num_heads", 2)]), &inputs);
    assert_near(&some(&found[0], 5), &[0.697459, -0.697673, 1.997171, 2.47226, 1.611454]);
}
